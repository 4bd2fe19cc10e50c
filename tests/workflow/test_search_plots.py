"""The pictures of a search, made of summaries that the search's own judging code gives for invented returns."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stockade.errors import InputError
from stockade.files import as_json
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ENTERPRISE, OP_SERVER, USER, classes_of_equal_orders
from stockade.workflow.plots import draw_search
from stockade.workflow.summary import Outcome, answer
from stockade.workflow.units import TYPES

NAMES = ["values.png", "learning.png", "precedences.png"]
