//! Connections to brokers: TCP, TLS, and the login by SASL.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, RequestHeader, ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use rsasl::config::SASLConfig;
use rsasl::prelude::{Mechname, SASLClient};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Deserialize;

const SASL_HANDSHAKE_VERSION: i16 = 1;
/// Brokers from Kafka 2.5 on know it.
const SASL_AUTHENTICATE_VERSION: i16 = 2;
const MAX_RESPONSE_BYTES: usize = 1 << 30;
/// Maximum time without a byte from the broker.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How to connect, as `resources/kafka/connection.py` describes it. It has secrets.
#[derive(Default, Deserialize)]
pub struct Login {
    tls: Option<Tls>,
    sasl: Option<Sasl>,
}

/// PEM texts; empty without them.
#[derive(Deserialize)]
struct Tls {
    /// The authorities that issue the brokers' certificates; those of the system if empty.
    authorities: String,
    /// The client's certificate and those of intermediate authorities.
    certificates: String,
    /// The key of the client's certificate.
    key: String,
}

#[derive(Deserialize)]
#[serde(tag = "mechanism")]
enum Sasl {
    #[serde(rename = "PLAIN")]
    Plain { user: String, password: String },
    #[serde(rename = "SCRAM-SHA-256")]
    Scram256 { user: String, password: String },
    #[serde(rename = "SCRAM-SHA-512")]
    Scram512 { user: String, password: String },
    #[serde(rename = "OAUTHBEARER")]
    Bearer { token: String, extensions: Vec<(String, String)> },
}

/// A login whose certificates were read.
pub struct Security {
    tls: Option<Arc<ClientConfig>>,
    sasl: Option<Sasl>,
}

impl Security {
    /// Read the certificates of a login.
    ///
    /// # Errors
    ///
    /// A text is no PEM, a key does not fit its certificate, or the system has no authorities.
    pub fn of(login: Login) -> Result<Self> {
        let tls = login.tls.map(|tls| client_config(&tls)).transpose()?;
        Ok(Self { tls: tls.map(Arc::new), sasl: login.sasl })
    }
}

fn client_config(tls: &Tls) -> Result<ClientConfig> {
    let mut authorities = RootCertStore::empty();
    if tls.authorities.is_empty() {
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        ensure!(!authorities.is_empty(), "the system has no certificates of authorities");
    }
    for certificate in certificates(&tls.authorities, "authorities")? {
        authorities.add(certificate).context("a certificate of an authority is not valid")?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(authorities);
    if tls.key.is_empty() {
        return Ok(builder.with_no_client_auth());
    }
    // The cause may quote the key.
    let key = PrivateKeyDer::from_pem_slice(tls.key.as_bytes()).map_err(|_| anyhow!("the client's key is no PEM"))?;
    Ok(builder.with_client_auth_cert(certificates(&tls.certificates, "client")?, key)?)
}

fn certificates(text: &str, whose: &str) -> Result<Vec<CertificateDer<'static>>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    read.map_err(|_| anyhow!("the text with certificates of the {whose} is no PEM"))
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// A connection to a broker, on which one request after another is sent and answered.
pub struct Connection {
    stream: Box<dyn Stream>,
    correlation: i32,
    buffer: BytesMut,
}

impl Connection {
    /// Connect to a broker and log in.
    ///
    /// # Errors
    ///
    /// The broker cannot be reached, its certificate is not trusted, or it refuses the login.
    pub fn open(host: &str, port: u16, security: &Security) -> Result<Self> {
        let stream = connected(host, port)?;
        let stream: Box<dyn Stream> = match &security.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).context("the broker's name is none for TLS")?;
                Box::new(StreamOwned::new(ClientConnection::new(tls.clone(), name)?, stream))
            }
        };
        let mut connection = Self { stream, correlation: 0, buffer: BytesMut::new() };
        if let Some(sasl) = &security.sasl {
            connection.log_in(sasl)?;
        }
        Ok(connection)
    }

    /// Send a request.
    pub fn send<R: Encodable + HeaderVersion>(&mut self, key: ApiKey, version: i16, request: &R) -> Result<()> {
        self.correlation += 1;
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; 4]);
        RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(StrBytes::from_static_str("lakehouse")))
            .encode(&mut self.buffer, R::header_version(version))?;
        request.encode(&mut self.buffer, version)?;
        let length = u32::try_from(self.buffer.len() - 4)?;
        self.buffer[..4].copy_from_slice(&length.to_be_bytes());
        self.stream.write_all(&self.buffer)?;
        Ok(self.stream.flush()?)
    }

    /// Return the response to the last request.
    pub fn receive<R: Decodable + HeaderVersion>(&mut self, version: i16) -> Result<R> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        ensure!(length < MAX_RESPONSE_BYTES, "a response has {length} bytes");
        let mut response = Vec::with_capacity(length);
        (&mut self.stream).take(length as u64).read_to_end(&mut response)?;
        ensure!(response.len() == length, "the broker closed the connection");
        let mut response = Bytes::from(response);
        let header = ResponseHeader::decode(&mut response, R::header_version(version))?;
        ensure!(header.correlation_id == self.correlation, "a response is of another request");
        R::decode(&mut response, version)
    }

    fn log_in(&mut self, sasl: &Sasl) -> Result<()> {
        match sasl {
            Sasl::Plain { user, password } => {
                self.begin_login("PLAIN")?;
                self.authenticate(format!("\0{user}\0{password}").into()).map(|_| ()) // RFC 4616
            }
            Sasl::Scram256 { user, password } => self.log_in_by_scram("SCRAM-SHA-256", user, password),
            Sasl::Scram512 { user, password } => self.log_in_by_scram("SCRAM-SHA-512", user, password),
            Sasl::Bearer { token, extensions } => {
                self.begin_login("OAUTHBEARER")?;
                let further: String = extensions.iter().map(|(name, value)| format!("\u{1}{name}={value}")).collect();
                let message = format!("n,,\u{1}auth=Bearer {token}{further}\u{1}\u{1}"); // RFC 7628, KIP-342
                let challenge = self.authenticate(message.into())?;
                ensure!(challenge.is_empty(), "the broker refuses the token");
                Ok(())
            }
        }
    }

    fn log_in_by_scram(&mut self, mechanism: &str, user: &str, password: &str) -> Result<()> {
        self.begin_login(mechanism)?;
        let config = SASLConfig::with_credentials(None, user.to_owned(), password.to_owned())?;
        let mut session = SASLClient::new(config).start_suggested(&[Mechname::parse(mechanism.as_bytes())?])?;
        let mut challenge: Option<Bytes> = None;
        loop {
            let mut message = Vec::new();
            let state = session.step(challenge.as_deref(), &mut message)?;
            if state.has_sent_message() {
                challenge = Some(self.authenticate(message.into())?);
            }
            if state.is_finished() {
                return Ok(());
            }
        }
    }

    fn begin_login(&mut self, mechanism: &str) -> Result<()> {
        let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_string(mechanism.to_owned()));
        self.send(ApiKey::SaslHandshake, SASL_HANDSHAKE_VERSION, &request)?;
        let response: SaslHandshakeResponse = self.receive(SASL_HANDSHAKE_VERSION)?;
        ensure!(response.error_code == 0, "the broker refuses {mechanism} by error {}", response.error_code);
        Ok(())
    }

    fn authenticate(&mut self, message: Bytes) -> Result<Bytes> {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(message);
        self.send(ApiKey::SaslAuthenticate, SASL_AUTHENTICATE_VERSION, &request)?;
        let response: SaslAuthenticateResponse = self.receive(SASL_AUTHENTICATE_VERSION)?;
        ensure!(response.error_code == 0, "the broker refuses the login by error {}", response.error_code);
        Ok(response.auth_bytes)
    }
}

fn connected(host: &str, port: u16) -> Result<TcpStream> {
    let mut error = anyhow!("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                stream.set_write_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(cause) => error = cause.into(),
        }
    }
    Err(error)
}
