#!/usr/bin/env python3
# Copyright: (c) 2026, the gpufleet.nvidia authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Write boards.h, the virtual NVML's table of boards, from a table of boards and MIG profiles.

    generate_boards.py TABLE.yaml > boards.h

TABLE has the shape of the reference table: ``gpus[].{key, product_names, pci_device_ids, total_memory_mib, memory_label,
compute_slices, placement_grid_units, arch, sm_total, profiles[]}``. Values that are null there have to have some value
here, because a board that answers must answer something; they come from the rules in ``_fill`` and are marked
``assumed`` in the header. What a test proves with an assumed value holds for the planner, not for the hardware.
"""

from __future__ import annotations

import sys
from typing import Any

#: What NVML answers beside MIG. (compute capability, NVML brand, NVLinks, power limit in W, PCI subsystem device)
COMPUTE_CAPABILITY = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0),
                      "blackwell": (10, 0)}
ARCHITECTURE = {"volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10}
BRAND_TESLA, BRAND_GEFORCE, BRAND_NVIDIA_RTX, BRAND_NVIDIA = 2, 5, 13, 14

OVERRIDES: dict[str, dict[str, Any]] = {
    "a30-24gb": {"subsystem": 0x1532, "power_w": 165},
    "a100-40gb": {"subsystem": 0x134F, "nvlinks": 12, "power_w": 400},
    "a100-80gb": {"subsystem": 0x1463, "nvlinks": 12, "power_w": 400},
    "h100-80gb-sxm": {"subsystem": 0x16C1, "nvlinks": 18, "power_w": 700},
    "h100-80gb-pcie": {"subsystem": 0x1626, "power_w": 350},
    "h100-nvl-94gb": {"subsystem": 0x1839, "nvlinks": 12, "power_w": 400},
    "h100-96gb-gh200": {"subsystem": 0x16EB, "power_w": 900},
    "h200-141gb": {"subsystem": 0x18BE, "nvlinks": 18, "power_w": 700},
    "b200-180gb": {"subsystem": 0x1999, "nvlinks": 18, "power_w": 1000, "sm_total": 148},
    "gb200-186gb": {"subsystem": 0x2046, "nvlinks": 18, "power_w": 1200, "sm_total": 152},
    "b300-269gb": {"nvlinks": 18, "power_w": 1100, "sm_total": 148, "capability": (10, 3)},
    "gb300-278gb": {"nvlinks": 18, "power_w": 1400, "sm_total": 152, "capability": (10, 3)},
    "rtx-pro-6000-96gb": {"capability": (12, 0), "brand": BRAND_NVIDIA_RTX, "power_w": 600},
    "rtx-pro-5000-48gb": {"capability": (12, 0), "brand": BRAND_NVIDIA_RTX, "power_w": 300, "sm_total": 110, "compute_slices": 2,
                          "placement_grid_units": 12},
    "rtx-pro-4500-32gb": {"capability": (12, 0), "brand": BRAND_NVIDIA_RTX, "power_w": 200, "sm_total": 82, "placement_grid_units": 12},
    "h20-96gb": {"nvlinks": 18, "power_w": 500, "sm_total": 78},
    "gh200-144gb": {"power_w": 900, "sm_total": 132},
}

#: Boards without MIG, for the hosts of a fleet that have none.
WITHOUT_MIG: list[dict[str, Any]] = [
    {"key": "t4-16gb", "product_names": ["Tesla T4"], "pci_device_ids": ["0x1EB810DE"], "total_memory_mib": 15360,
     "arch": "turing", "sm_total": 40, "subsystem": 0x12A2, "power_w": 70, "brand": BRAND_TESLA},
    {"key": "l40s-48gb", "product_names": ["NVIDIA L40S"], "pci_device_ids": ["0x26B910DE"], "total_memory_mib": 46068,
     "arch": "ada", "sm_total": 142, "subsystem": 0x1851, "power_w": 350},
    {"key": "v100-16gb", "product_names": ["Tesla V100-PCIE-16GB"], "pci_device_ids": ["0x1DB410DE"],
     "total_memory_mib": 16384, "arch": "volta", "sm_total": 80, "subsystem": 0x1214, "power_w": 250, "brand": BRAND_TESLA},
    {"key": "rtx-2080-ti-11gb", "product_names": ["NVIDIA GeForce RTX 2080 Ti"], "pci_device_ids": ["0x1E0710DE"],
     "total_memory_mib": 11264, "arch": "turing", "sm_total": 68, "subsystem": 0x12A4, "power_w": 260, "brand": BRAND_GEFORCE,
     "class": 0x030000},
]

#: The same chip under another driver or from an early lot: names and memory that the reference table reports in its
#: caveats. They are boards of their own here, so that a test can create them: (key, of, memory label, {profile: (name, MiB)}).
VARIANTS: list[tuple[str, str, str | None, dict[str, tuple[str, int]]]] = [
    ("a100-80gb-later-driver", "a100-80gb", None, {"1g.10gb": ("1g.10gb", 9984), "1g.10gb+me": ("1g.10gb+me", 9984)}),
    ("b200-180gb-earlier-driver", "b200-180gb", None, {"1g.23gb": ("1g.23gb", 22528), "1g.23gb+me": ("1g.23gb+me", 22528)}),
    ("gb200-189gb-early", "gb200-186gb", "189GB", {
        "1g.23gb": ("1g.24gb", 20480), "1g.23gb+me": ("1g.24gb+me", 20480), "1g.47gb": ("1g.47gb", 47104),
        "2g.47gb": ("2g.47gb", 47104), "3g.93gb": ("3g.95gb", 94720), "4g.93gb": ("4g.95gb", 94720),
        "7g.186gb": ("7g.189gb", 190464)}),
]

#: NVML reports a wrong InstanceCount on this board; that it is wrong is known, how wrong is assumed.
REPORTED_INSTANCE_COUNT = {("a30-24gb", "1g.6gb"): 7, ("a30-24gb", "2g.12gb"): 3}

PROFILE_IDS = {"1g": 19, "1g+me": 20, "1gx2": 15, "2g": 14, "3g": 9, "4g": 5, "7g": 0}
ENUMS = {"1g": 0, "2g": 1, "3g": 2, "4g": 3, "7g": 4, "1g+me": 7, "2g+me": 8, "1gx2": 9, "1g+gfx": 10, "2g+gfx": 11,
         "4g+gfx": 12, "1g-me": 13, "2g-me": 14, "1g+me.all": 15, "2g+me.all": 16}
STARTS_8 = {"1g": ([0, 1, 2, 3, 4, 5, 6], 1), "1g+me": ([0, 1, 2, 3, 4, 5, 6], 1), "1gx2": ([0, 2, 4, 6], 2),
            "2g": ([0, 2, 4], 2), "3g": ([0, 4], 4), "4g": ([0], 4), "7g": ([0], 8)}
NEAR_LABEL_MIB = 512  # NVML rounds the total up to the label


def _kind(name: str, base_gb: str) -> str:
    """The profile's kind without its memory: 1g, 1gx2 (double memory), 1g+me, 2g-me ..."""
    slices, rest = name.split(".", 1)
    memory = rest.split("gb")[0]
    suffix = rest.split("gb", 1)[1]
    return slices + ("x2" if slices == "1g" and memory != base_gb else "") + suffix


def _base_gb(profiles: list[dict[str, Any]]) -> str:
    return next(p["name"] for p in profiles if p["name"].startswith("1g.")).split(".", 1)[1].split("gb")[0]


def _fill(board: dict[str, Any]) -> dict[str, Any]:
    """The board with every null replaced by an assumption; `assumed` names what was replaced."""
    extra = OVERRIDES.get(board["key"], {})
    filled = {**board, **{k: v for k, v in extra.items() if board.get(k) is None}}
    assumed = {k for k in ("sm_total", "compute_slices", "placement_grid_units") if board.get(k) is None and k in extra}
    label_gib = int(filled["memory_label"].rstrip("GB")) if filled.get("memory_label") else 0
    if filled.get("total_memory_mib") is None:
        filled["total_memory_mib"] = label_gib * 1024 - NEAR_LABEL_MIB
        assumed.add("total_memory_mib")
    filled.setdefault("profiles", [])
    filled["profiles"] = [_fill_profile(filled, profile, assumed) for profile in filled["profiles"]]
    filled["assumed"] = sorted(assumed)
    return filled


def _fill_profile(board: dict[str, Any], profile: dict[str, Any], assumed: set[str]) -> dict[str, Any]:
    grid, slices = board["placement_grid_units"], profile["gpu_slices"]
    kind = _kind(profile["name"], _base_gb(board["profiles"]))
    filled = dict(profile)

    def default(key: str, value: Any) -> None:
        if filled.get(key) is None:
            filled[key] = value
            assumed.add(f"{profile['name']}.{key}")

    per_slice = grid // board["compute_slices"] if board["compute_slices"] in (2, 4) else None
    if per_slice:
        size = slices * per_slice
        starts = list(range(0, grid - size + 1, size))
    else:
        starts, size = STARTS_8[kind]
    default("placements", {"starts": starts, "size": size})
    placements = filled["placements"]
    filled["starts"], filled["size"] = placements["starts"], placements["size"]
    whole = filled["size"] == grid
    default("nvml_enum", ENUMS[kind])
    default("profile_id", PROFILE_IDS[kind] if board["compute_slices"] == 7 else 40 + ENUMS[kind])
    default("memory_mib", int(board["total_memory_mib"] * filled["size"] / grid * 0.985) // 64 * 64)
    default("multiprocessors", board["sm_total"] if whole else board["sm_total"] * slices // (board["compute_slices"] + 1) // 2 * 2)
    default("copy_engines", slices)
    default("decoders", 7 if whole else slices)
    default("encoders", 0)
    default("jpeg", 7 if whole else slices)
    default("ofa", 1 if whole or "+me" in kind else 0)
    filled["reported_count"] = REPORTED_INSTANCE_COUNT.get((board["key"], profile["name"]), filled["max_instances"])
    return filled


def _variants(boards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for key, of, label, renamed in VARIANTS:
        origin = next(b for b in boards if b["key"] == of)
        profiles = []
        for profile in origin["profiles"]:
            name, mib = renamed.get(profile["name"], (profile["name"], profile["memory_mib"]))
            profiles.append({**profile, "name": name, "memory_mib": mib})
        OVERRIDES[key] = OVERRIDES.get(of, {})
        found.append({**origin, "key": key, "memory_label": label or origin["memory_label"], "profiles": profiles,
                      "total_memory_mib": None if label else origin["total_memory_mib"]})
    return found


def _c_profile(profile: dict[str, Any]) -> str:
    fields = ("nvml_enum", "profile_id", "gpu_slices", "max_instances", "reported_count", "memory_mib", "multiprocessors",
              "copy_engines", "decoders", "encoders", "jpeg", "ofa")
    numbers = ", ".join(str(profile[f]) for f in fields)
    starts = ", ".join(str(s) for s in profile["starts"])
    return f'    {{"{profile["name"]}", {numbers}, {profile["size"]}, {len(profile["starts"])}, {{{starts}}}}},'


def render(gpus: list[dict[str, Any]]) -> str:
    """The header's text. Same table, same bytes."""
    boards = [_fill(b) for b in gpus + _variants(gpus) + WITHOUT_MIG]
    lines = ["/* Generated by generate_boards.py; do not edit. Included once, by boards.c. */", ""]
    for number, board in enumerate(boards):
        if board["profiles"]:
            lines.append(f"static const struct profile profiles_{number}[] = {{ /* {board['key']} */")
            lines += [_c_profile(p) for p in board["profiles"]] + ["};"]
            if board["assumed"]:
                lines.append(f"/* assumed: {', '.join(board['assumed'])} */")
    lines.append("\nconst struct board boards[] = {")
    for number, board in enumerate(boards):
        extra = {**OVERRIDES.get(board["key"], {}), **board}
        major, minor = extra.get("capability", COMPUTE_CAPABILITY[board["arch"]])
        device = int(board["pci_device_ids"][0], 16) >> 16
        profiles = f"profiles_{number}, {len(board['profiles'])}" if board["profiles"] else "NULL, 0"
        numbers = ", ".join(str(n) for n in (
            f"0x{device:04x}", f"0x{extra.get('subsystem', 0x1000):04x}", f"0x{extra.get('class', 0x030200):06x}",
            ARCHITECTURE[board["arch"]], major, minor, extra.get("brand", BRAND_NVIDIA), board["total_memory_mib"],
            board.get("compute_slices") or 0, board.get("placement_grid_units") or 0, board["sm_total"],
            extra.get("nvlinks", 0), extra.get("power_w", 300)))
        lines.append(f'    {{"{board["key"]}", "{board["product_names"][0]}", {numbers}, {profiles}}},')
    lines += ["};", f"const int board_count = {len(boards)};", ""]
    return "\n".join(lines)


def _read(path: str) -> list[dict[str, Any]]:
    import yaml

    with open(path, encoding="utf-8") as stream:
        return yaml.safe_load(stream)["gpus"]


if __name__ == "__main__":
    sys.stdout.write(render(_read(sys.argv[1])))
