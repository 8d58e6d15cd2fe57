"""Paths, sections, commands and settings in the documentation exist."""

import re
import subprocess
import textwrap

import click
import pytest
import yaml

from lakehouse.cli.main import main
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.loader import load
from lakehouse.config.model import Config, Topic
from resources.build import build_resources
from tools.repository import PROJECT

FILES = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
GENERATED = {"dist/sbom.cdx.json"}
PAGES = [name for name in FILES if name.endswith(".md") and not name.startswith("THIRD_PARTY")]
ROOTS = {name.split("/")[0] for name in FILES if "/" in name}
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
YAML = re.compile(r"^ *```yaml[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
OTHERS = ("runs-on:", "scrape_configs:")
"""Keys of the files of other programs: GitHub and Prometheus."""
EXAMPLES = [
    (page, text)
    for page in PAGES
    for text in YAML.findall((PROJECT / page).read_text())
    if not any(key in text for key in OTHERS)
]
SECTION = re.compile(r"\bdocs/([\w-]+\.md), ([A-Z][\w ]+?)(?=[).;\"])")


def prose(page: str) -> str:
    return FENCED.sub("", (PROJECT / page).read_text())


def paths(text: str) -> list[str]:
    """Return the texts in inline code that name a file of the repository by its path."""
    spans = [span.partition("::")[0] for span in CODE.findall(text)]
    return [span for span in spans if re.fullmatch(r"[\w.-]+(/[\w.-]+)+\.\w+", span) and span.split("/")[0] in ROOTS]


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_page_names_only_existing_files(page):
    assert [path for path in paths(prose(page)) if path not in FILES and path not in GENERATED] == []


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith("docs/")])
def test_page_outside_of_site_links_to_existing_sections(page):
    broken = []
    for link, anchor in re.findall(r"\]\((?![a-z]+:)([^)#]*)#?([^)]*)\)", prose(page)):
        target = (PROJECT / page).parent / link if link else PROJECT / page
        if not target.exists() or (anchor and anchor not in anchors(str(target.resolve().relative_to(PROJECT)))):
            broken.append(f"{link}#{anchor}")
    assert broken == []


def test_code_refers_to_existing_sections():
    code = [name for name in FILES if name.endswith(".py") and not name.startswith("tests/")]
    named = {match for name in code for match in SECTION.findall((PROJECT / name).read_text())}
    assert named
    assert [name for name in sorted(named) if f"\n## {name[1]}\n" not in (PROJECT / "docs" / name[0]).read_text()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if "/reference/" not in page])
def test_page_names_only_existing_commands(page):
    unknown = []
    blocks = "\n".join(FENCED.findall((PROJECT / page).read_text()))
    inline = re.findall(r"`lakehouse ([a-z][^`]*)`", prose(page))
    for words in inline + re.findall(r"(?:^|\$|run:) *lakehouse ([a-z].*)$", blocks, re.MULTILINE):
        command: click.Command | None = main
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            command = command.get_command(click.Context(command), word)
        if command and command.context_settings.get("ignore_unknown_options"):  # those of another program
            continue
        options = (
            {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
            if command
            else set()
        )
        unknown += [words] * (command is None)
        unknown += [f"{words}: {option}" for option in re.findall(r"--[a-z-]+", words) if option not in options]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES)
def test_page_names_only_existing_make_targets(page):
    makefile = (PROJECT / "Makefile").read_text()
    text = (PROJECT / page).read_text()
    for target, variable in re.findall(r"(?:`|^\$ )make ([a-z-]+)(?: ([A-Z]+)=)?", text, re.MULTILINE):
        assert f"\n{target}: " in makefile, target
        assert f"$({variable})" in makefile or not variable, variable


@pytest.mark.parametrize(("page", "text"), EXAMPLES)
def test_yaml_example_is_valid_configuration(page, text, tmp_path):
    declared = yaml.safe_load(textwrap.dedent(text))
    declared = declared.get("attributes", declared)  # of a component, which has the keys of an entry
    if declared.keys() <= SYSTEMS.keys():
        declared = {"environments": {"aws": declared}}
    elif declared.keys() <= Topic.model_fields.keys():
        declared = {"topics": {"example": declared}}
    elif not declared.keys() <= Config.model_fields.keys():
        declared = {"topics": declared}
    configuration = yaml.safe_load((PROJECT / "lakehouse.yaml").read_text())
    configuration["deployments"] = {"aws": {"name": "production", "account": "123456789012"}}
    for section, entries in declared.items():
        for name, entry in entries.items():
            of_section = configuration.setdefault(section, {})
            of_section[name] = of_section.get(name, {}) | entry
    (tmp_path / "schemas").symlink_to(PROJECT / "schemas")
    (tmp_path / "lakehouse.yaml").write_text(yaml.safe_dump(configuration))
    config = load(tmp_path / "lakehouse.yaml")
    build_resources(config, "aws")
