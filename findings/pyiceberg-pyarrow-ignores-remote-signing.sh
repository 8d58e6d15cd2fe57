#!/usr/bin/env bash
# pyiceberg's usual client of files ignores a catalog that signs requests to S3, and signs them with other credentials.
#
# Versions: pyiceberg 0.12.0 with pyarrow 22.0.0.
# Input:    the file properties that a REST catalog returns with a table for remote signing (`s3.remote-signing-enabled`,
#           `s3.signer`, `s3.signer.uri`, `s3.signer.endpoint`), and the environment's own AWS credentials. A file is read
#           through them from a local server of HTTP, which also is the signer, and answers each request with 404.
# Seen:     `load_file_io` returns PyArrowFileIO without a warning. The signer gets no request; S3 gets one whose
#           `Authorization` has the key of the environment.
# Expected: the signer gets the request, as Iceberg's Java library and pyiceberg's FsspecFileIO do; or an error that
#           says that this client cannot.
# Matters:  a table whose catalog grants access by signatures only is read with the rights of whoever runs the program,
#           or the program is refused by S3 although the catalog allows it. The error names neither.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv --without-pip "$folder/venv"
python3 -m pip --python "$folder/venv/bin/python" install --quiet --no-compile --disable-pip-version-check \
  'pyiceberg[pyarrow]==0.12.0' pyarrow==22.0.0
AWS_ACCESS_KEY_ID=of-the-environment AWS_SECRET_ACCESS_KEY=example AWS_EC2_METADATA_DISABLED=true \
  "$folder/venv/bin/python" -B -W error::UserWarning - <<'PYTHON'
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyiceberg.io import load_file_io

requests = []


class NotFound(BaseHTTPRequestHandler):
    def answer(self):
        authorization = self.headers.get("Authorization", "")
        requests.append((self.command, self.path, "Credential=of-the-environment/" in authorization))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = answer

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), NotFound)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}"
of_table = {
    "s3.remote-signing-enabled": "true",
    "s3.signer": "S3V4RestSigner",
    "s3.signer.uri": address,
    "s3.signer.endpoint": "v1/sign",
    "s3.endpoint": address,
    "s3.region": "us-east-1",
    "token": "of-the-catalog",
}
files = load_file_io(of_table, "s3://lake/shop/orders/metadata/00000.metadata.json")
try:
    with files.new_input("s3://lake/shop/orders/metadata/00000.metadata.json").open() as stream:
        stream.read()
except FileNotFoundError as error:
    print("error:", type(error).__name__)
server.shutdown()
signed = [path for _, path, _ in requests if "sign" in path]
direct = [(method, path) for method, path, is_of_environment in requests if is_of_environment]
print(f"client: {type(files).__name__}; requests to the signer: {len(signed)}; signed by the environment's key: {direct}")
if type(files).__name__ != "PyArrowFileIO" or signed or not direct:
    sys.exit("The behaviour changed.")
PYTHON
