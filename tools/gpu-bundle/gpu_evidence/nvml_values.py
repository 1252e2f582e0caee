# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turn what pynvml answers into values of JSON, without losing what it says."""

from __future__ import annotations

import ctypes
from typing import Any

#: Longer arrays are cut: they are samples, not settings.
_ROOM = 512

#: C(nvmlValueType_t): which member of the union a field's value is in.
_FIELD_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def plain(value: Any) -> Any:
    """Return C(value) as JSON can hold it. A handle is only said to be one: its value means nothing elsewhere."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return _text(bytes(value))
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(one) for one in list(value)[:_ROOM]]
    if isinstance(value, ctypes.Array):
        return _array(value)
    if isinstance(value, ctypes.Structure):
        return _structure(value)
    if isinstance(value, ctypes.Union):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, ctypes._Pointer):
        return "<handle>" if value else "<null>"
    if isinstance(value, ctypes._SimpleCData):
        return plain(value.value)
    if hasattr(value, "__dict__"):
        return {name: plain(one) for name, one in vars(value).items() if not name.startswith("_")}
    return repr(value)


def _array(value: Any) -> Any:
    if value._type_ in (ctypes.c_char, ctypes.c_ubyte, ctypes.c_uint8):
        return _text(bytes(value)) if value._type_ is ctypes.c_char else {"hex": bytes(value).hex()}
    return [plain(value[index]) for index in range(min(len(value), _ROOM))]


def _structure(value: Any) -> dict[str, Any]:
    names = [name for name, *_ in value._fields_]
    if "nvmlReturn" in names and "valueType" in names:
        member = _FIELD_VALUES.get(value.valueType, "ullVal")
        return {
            **{name: plain(getattr(value, name)) for name in names if name != "value"},
            "value": plain(getattr(value.value, member, None)) if value.nvmlReturn == 0 else None,
        }
    return {name: plain(getattr(value, name)) for name in names}


def _text(value: bytes) -> Any:
    text = value.rstrip(b"\0")
    try:
        decoded = text.decode("ascii")
    except UnicodeDecodeError:
        return {"hex": value.hex()}
    return decoded if decoded.isprintable() else {"hex": value.hex()}
