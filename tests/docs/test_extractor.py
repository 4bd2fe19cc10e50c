"""The extractor of code blocks: fences, indentation, info strings, marks, commands."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs.blocks import Block, PageError, blocks_of

PAGE = Path("page.md")


def extract(text: str) -> list[Block]:
    return blocks_of(PAGE, dedent(text))


def test_blocks_come_in_order_with_language_line_and_code() -> None:
    found = extract("""\
        # A page
        ```python
        a = 1

        b = 2
        ```
        Words.
        ~~~
        output
        ~~~
        """)
    assert found == [Block(PAGE, 3, "python", "a = 1\n\nb = 2\n"), Block(PAGE, 9, "", "output\n")]


def test_a_longer_fence_holds_a_shorter_one() -> None:
    (block,) = extract("""\
        ````text
        ```python
        inner
        ```
        ````
        """)
    assert (block.language, block.code) == ("text", "```python\ninner\n```\n")
    (block,) = extract("~~~sh\n```\n~~~\n")
    assert block.code == "```\n"


def test_a_fence_with_an_info_string_does_not_end_a_block() -> None:
    (block,) = extract("```text\n```python\n```\n")
    assert block.code == "```python\n"


@pytest.mark.parametrize(
    "text",
    [
        '1. Do this:\n\n    ```python\n    if x:\n        y()\n    ```\n',
        '!!! note "Watch out"\n\n    ```python\n    if x:\n        y()\n    ```\n',
        '=== "Linux"\n\n    ```python\n    if x:\n        y()\n    ```\n\n=== "Windows"\n',
        "- item\n  ```python\n  if x:\n      y()\n  ```\n",
        "> ```python\n> if x:\n>     y()\n> ```\n",
        "\t```python\n\tif x:\n\t    y()\n\t```\n",
    ],
    ids=["list", "admonition", "tab", "bullet", "quote", "tabulator"],
)  # fmt: skip
def test_the_indentation_of_a_fence_is_no_part_of_the_code(text: str) -> None:
    (block,) = blocks_of(PAGE, text)
    assert block.code == "if x:\n    y()\n"


def test_lines_with_less_indentation_stay_in_the_block() -> None:
    (block,) = blocks_of(PAGE, "  ```text\n  a\n\n b\n  ```\n")
    assert block.code == "a\n\nb\n"


@pytest.mark.parametrize(
    "info", ["python", " python", "Python", 'python title="a.py" hl_lines="2"', "{.python .annotate}", "{ .python }"]
)
def test_the_language_is_the_first_word_of_the_info_string(info: str) -> None:
    (block,) = blocks_of(PAGE, f"```{info}\npass\n```\n")
    assert block.language == "python"


def test_code_inside_a_line_is_no_fence() -> None:
    assert extract("```stockade train``` trains.\n\nUse ``` ` ``` for a backtick.\n") == []


def test_a_mark_belongs_to_the_next_block_only() -> None:
    first, second = extract("""\
        <!-- not run: needs a cluster -->

        ```sh
        ray start --head
        ```

        ```sh
        stockade runs
        ```
        """)
    assert (first.not_run, second.not_run) == ("needs a cluster", None)
    (indented,) = blocks_of(PAGE, "- item\n\n    <!-- not run: takes minutes -->\n    ```sh\n    make\n    ```\n")
    assert indented.not_run == "takes minutes"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<!-- not run -->\n```sh\nls\n```\n", "page.md:1: the mark 'not run' gives no reason"),
        ("<!-- not run: -->\n```sh\nls\n```\n", "gives no reason"),
        ("a\n<!-- not run: slow -->\nwords\n```sh\nls\n```\n", "page.md:2: no code block follows"),
        ("<!-- not run: slow -->\n", "no code block follows"),
        ("<!-- not run: slow -->\n<!-- not run: slow -->\n```sh\nls\n```\n", "no code block follows"),
        ("\n```python\nx\n", "page.md:2: this code block never ends"),
    ],
)
def test_pages_that_make_no_sense_are_refused(text: str, says: str) -> None:
    with pytest.raises(PageError, match=says):
        blocks_of(PAGE, text)


def test_marks_and_fences_inside_blocks_and_comments_do_not_count() -> None:
    (block,) = extract("```text\n<!-- not run: example -->\n```\n")
    assert block.not_run is None
    assert extract("<!-- hidden\n```python\n```\n-->\n") == []
    assert extract("<!-- bench:begin -->\n| a |\n<!-- bench:end -->\n") == []
    assert extract("Write `<!-- not run: REASON -->` before it.\n") == []


@pytest.mark.parametrize(
    ("block", "says"),
    [
        (Block(PAGE, 7, "pyhton", "x\n"), "page.md:7: unknown language 'pyhton'"),
        (Block(PAGE, 7, "json", "{}\n", "because"), "for Python and shell blocks"),
        (Block(PAGE, 7, "", "stockade train\n"), "looks like code"),
        (Block(PAGE, 7, "", "import stockade\n"), "looks like code"),
        (Block(PAGE, 7, "", "$ ls\n"), "looks like code"),
        (Block(PAGE, 7, "", "make.py   makes\nmake      `make`\nstockade/\n"), None),
        (Block(PAGE, 7, "text", "stockade train\n"), None),
        (Block(PAGE, 7, "python", "x\n", "because"), None),
    ],
)
def test_languages_are_checked(block: Block, says: str | None) -> None:
    problem = block.problem()
    assert problem is None if says is None else says in str(problem)


def test_commands_are_split_into_words() -> None:
    (block,) = extract("""\
        ```sh
        # first
        stockade train --name 'a b'    # a comment

        JAX=1 OTHER=2 stockade runs && cd x
        stockade search \\
            --seed 3
        ```
        """)
    assert block.commands() == [
        ["stockade", "train", "--name", "a b"],
        ["stockade", "runs"],
        ["cd", "x"],
        ["stockade", "search", "--seed", "3"],
    ]
