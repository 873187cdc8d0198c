"""Tests that need a C++ compiler."""

from __future__ import annotations

import os
import shutil

import pytest

COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")


needs_compiler = pytest.mark.skipif(not COMPILER, reason="no C++ compiler on this machine")
