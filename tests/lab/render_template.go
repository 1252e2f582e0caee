// Renders a configuration template of k3s or RKE2 as they do: Go's text/template, with their template "base" beside it.
// Standard input: {"template": ..., "base": ..., "data": {...}}; data has the fields that k3s hands to its templates.
package main

import (
	"encoding/json"
	"log"
	"os"
	"text/template"
)

func main() {
	var given struct {
		Template, Base string
		Data           map[string]any
	}
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		log.Fatal(err)
	}
	made := template.Must(template.New("compiled_template").Option("missingkey=error").Parse(given.Template))
	template.Must(made.New("base").Parse(given.Base))
	if err := made.Execute(os.Stdout, given.Data); err != nil {
		log.Fatal(err)
	}
}
