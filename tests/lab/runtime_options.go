// Copyright: (c) 2026, the gpufleet.nvidia authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// Command runtime_options prints the options that containerd hands to a runtime: what its own code makes of the TOML text of a
// runtime's table. It is built inside containerd's source, whose packages are internal; container_tools.py adapts it to 1.x.
package main

import (
	"encoding/json"
	"log"
	"os"

	generate "github.com/containerd/containerd/v2/internal/cri/config"
	criconfig "github.com/containerd/containerd/v2/internal/cri/config"
	"github.com/pelletier/go-toml/v2"
)

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		log.Fatal(err)
	}
	options := make([]any, len(texts))
	for i, text := range texts {
		var runtime criconfig.Runtime
		if err := toml.Unmarshal([]byte(text), &runtime); err != nil {
			log.Fatalf("%q: %v", text, err)
		}
		var err error
		if options[i], err = generate.GenerateRuntimeOptions(runtime); err != nil {
			log.Fatalf("%q: %v", text, err)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(options); err != nil {
		log.Fatal(err)
	}
}
