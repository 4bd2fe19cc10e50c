"""Pages of the site that are files at the root of the repository: changes, contributing, and how to cite."""

import re
from pathlib import Path

import yaml
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {"CHANGELOG.md": "about/changes.md", "CONTRIBUTING.md": "about/contributing.md"}
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
    """Add them, with links as seen from docs/about."""
    root = Path(config.docs_dir).parent
    for name, uri in PAGES.items():
        text = re.sub(r"\]\(docs/", "](../", (root / name).read_text())
        for other, place in PAGES.items():
            text = text.replace(f"]({other})", f"]({Path(place).name})")
        files.append(File.generated(config, uri, content=text))
    facts = yaml.safe_load((root / "CITATION.cff").read_text())
    authors = " and ".join(author["name"] for author in facts["authors"])
    files.append(File.generated(config, "about/citation.md", content=CITATION.format(**facts | {"authors": authors})))
    return files
