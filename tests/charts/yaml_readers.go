// Copyright: (c) 2026, the gpufleet.nvidia authors
// GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
// SPDX-License-Identifier: GPL-3.0-or-later

// What the YAML libraries of Go programs make of a list: reads it, and prints it as JSON by library, with null for what is no text.
package main

import (
	"encoding/json"
	"io"
	"os"

	v2 "go.yaml.in/yaml/v2"
	v3 "go.yaml.in/yaml/v3"
	old "gopkg.in/yaml.v3"
	kubernetes "sigs.k8s.io/yaml"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	readers := map[string]func([]byte, any) error{
		"sigs.k8s.io/yaml":   func(text []byte, into any) error { return kubernetes.Unmarshal(text, into) },
		"go.yaml.in/yaml/v2": v2.Unmarshal,
		"go.yaml.in/yaml/v3": v3.Unmarshal,
		"gopkg.in/yaml.v3":   old.Unmarshal,
	}
	found := map[string][]any{}
	for name, read := range readers {
		var list []any
		if err := read(text, &list); err != nil {
			panic(name + ": " + err.Error())
		}
		for position, value := range list {
			if _, isText := value.(string); !isText {
				list[position] = nil
			}
		}
		found[name] = list
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		panic(err)
	}
}
