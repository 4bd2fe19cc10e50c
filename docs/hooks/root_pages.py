"""Pages of the site that are files at the root of the repository: changes, contributing, and how to cite."""

import re
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md", "CITATION.cff": "citation.md"}
LINK = re.compile(r"\[([^]]+)\]\((?!https?:|#)([^)]+)\)")
CITATION = """# Citation

If you use Stockade in your work, please cite it. `CITATION.cff` at the root of the repository says the same.

```bibtex
@software{{stockade,
  title   = {{{title}}},
  author  = {{{{{authors}}}}},
  version = {{{version}}},
  license = {{{license}}},
}}
```

Please also cite the challenge that it simulates. Name rule set, attacker and horizon beside every score: a figure
without them [means nothing](../concepts/rules.md#traps).
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add them to docs/about."""
    root = Path(config.docs_dir).parent
    facts = yaml.safe_load((root / "CITATION.cff").read_text())
    facts["authors"] = " and ".join(author["name"] for author in facts["authors"])
    for name, page in PAGES.items():
        text = CITATION.format(**facts) if page == "citation.md" else LINK.sub(_link, (root / name).read_text())
        files.append(File.generated(config, f"about/{page}", content=text))
    return files


def _link(found: re.Match[str]) -> str:
    """A link as seen from docs/about; files that are not part of the site are only named."""
    words, target = found.groups()
    if target.startswith("docs/"):
        return f"[{words}](../{target.removeprefix('docs/')})"
    return f"[{words}]({PAGES[target]})" if target in PAGES else words
