"""What GitHub runs and shows: workflows against the Makefile and pyproject.toml, CITATION.cff, templates."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import stockade
from stockade.errors import missing_package
from tests.release.dependencies import OURS, ROOT, oldest, project

yaml = pytest.importorskip("yaml", reason="pre-commit brings it")
GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((GITHUB / "workflows").glob("*.yml"))}
JOBS = {f"{name}-{job}": content for name, flow in WORKFLOWS.items() for job, content in flow["jobs"].items()}


def steps(job: str) -> list[dict]:
    return JOBS[job]["steps"]


def commands(job: str) -> list[str]:
    return [step["run"] for step in steps(job) if "run" in step]


def test_the_workflow_runs_make_test_on_every_python_that_is_claimed():
    claimed = [c.rpartition(" ")[2] for c in project()["classifiers"] if re.search(r"Python :: 3\.", c)]
    assert JOBS["test-test"]["strategy"]["matrix"]["python"] == claimed
    assert project()["requires-python"] == f">={claimed[0]}"
    assert commands("test-test") == ["make test PYTHON=python"]


@pytest.mark.parametrize("job", JOBS)
def test_every_make_target_of_a_workflow_exists(job):
    ages = [{"age": each["age"]} for each in JOBS[job].get("strategy", {}).get("matrix", {}).get("include", [])]
    targets = [target for line in commands(job) for target in re.findall(r"make ([a-z$-]\S*(?: \S+ }})?)", line)]
    for target in targets:
        for age in ages or [{}]:
            name = target.replace("${{ matrix.age }}", age.get("age", ""))
            asked = subprocess.run(["make", "-n", name], cwd=ROOT, capture_output=True, text=True)
            assert asked.returncode == 0, f"{job}: make {name}: {asked.stderr}"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_may_read_only_and_jobs_say_what_more(name):
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    more = {job: content["permissions"] for job, content in WORKFLOWS[name]["jobs"].items() if "permissions" in content}
    assert more == {
        "docs": {"deploy": {"pages": "write", "id-token": "write"}},
        "release": {"publish": {"id-token": "write"}},
    }.get(name, {})


@pytest.mark.parametrize("job", JOBS)
def test_jobs_end_and_their_actions_are_pinned(job):
    assert JOBS[job]["timeout-minutes"] <= 90
    used = [step["uses"] for step in steps(job) if "uses" in step]
    assert all(re.fullmatch(r"(actions/[\w-]+@v\d+|[\w/-]+@(release/v1|[0-9a-f]{40}))", each) for each in used), used
    for step in steps(job):
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


def test_nothing_is_published_with_a_secret_or_without_the_checks_before_it():
    texts = [path.read_text() for path in (GITHUB / "workflows").iterdir()]
    assert not any("secrets." in text or "password" in text for text in texts)
    assert JOBS["release-publish"]["needs"] == "build"
    ran = commands("release-build")
    assert ran[1:] == ["make test PYTHON=python", "make test-release", "make build"]


@pytest.mark.parametrize(("tag", "code"), [(f"v{stockade.__version__}", 0), ("v0.0.1", 1), (stockade.__version__, 1)])
def test_a_tag_that_is_not_the_version_stops_the_release(tag, code):
    check = commands("release-build")[0]
    environment = {**os.environ, "GITHUB_REF_NAME": tag}
    assert subprocess.run(["bash", "-c", check], cwd=ROOT, env=environment).returncode == code


def test_the_site_that_is_published_is_the_one_that_make_docs_builds():
    (upload,) = [step for step in steps("docs-build") if step.get("uses", "").startswith("actions/upload-pages")]
    configured = re.search(r"^site_dir: (\S+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert upload["with"]["path"] == configured.group(1)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == stockade.__version__
    assert citation["license"] == project()["license"]


def test_issue_forms_are_complete():
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml")}
    assert forms.pop("config")
    asked = {}
    for name, form in forms.items():
        assert {"name", "description", "body"} <= form.keys()
        fields = [field for field in form["body"] if field["type"] != "markdown"]
        assert len({field["id"] for field in fields}) == len(fields)
        asked[name] = {field["id"] for field in fields if field.get("validations", {}).get("required")}
    assert {"version", "machine"} <= asked["bug"]
    assert {"version", "seed", "actions", "verify"} <= asked["fidelity"]


def test_every_package_that_users_get_has_a_least_version_and_a_tested_one():
    extras = project()["optional-dependencies"]
    needs = {re.split(r"[\[<>=]", each)[0] for each in project()["dependencies"]}
    needs |= {re.split(r"[\[<>=]", each)[0] for extra in extras.keys() - set(OURS) for each in extras[extra]}
    assert oldest().keys() == needs
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert needs - pinned.keys() == {"ray"}  # which has an environment of its own, without these
    for name, least in oldest().items():
        newest = pinned.get(name, "999")
        assert tuple(map(int, least.split("."))) <= tuple(map(int, newest.split("."))), name


def test_a_missing_package_of_an_extra_is_named_with_its_extra():
    for extra, needs in project()["optional-dependencies"].items():
        for package in () if extra in OURS else needs:
            module = re.split(r"[\[<>=]", package)[0].replace("-", "_")
            assert f"'stockade[{extra}]'" in str(missing_package(ModuleNotFoundError(name=module)))


def test_the_changelog_begins_with_this_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(.*?)\]", text, re.MULTILINE)
    assert next(each for each in versions if each != "Unreleased") == stockade.__version__


def test_the_version_stands_in_one_place():
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in content["project"]
    assert Path(content["tool"]["hatch"]["version"]["path"]) == Path("stockade/__init__.py")
