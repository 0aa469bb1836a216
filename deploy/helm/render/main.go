// Command render prints the manifests of a chart: Go templates with sprig, as Helm renders them.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run ./deploy/helm/render CHART [VALUES.yaml ...]
//
// It is for checks where Helm cannot be had. It knows the functions that this chart uses: include,
// required, toYaml, and sprig.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type values = map[string]interface{}

func read(path string) values {
	text, err := os.ReadFile(path)
	check(err)
	found := values{}
	check(yaml.Unmarshal(text, &found))
	return found
}

// overlay puts the members of b over those of a, maps within maps included.
func overlay(a, b values) values {
	for name, value := range b {
		inner, isMap := value.(values)
		below, wasMap := a[name].(values)
		if isMap && wasMap {
			a[name] = overlay(below, inner)
		} else {
			a[name] = value
		}
	}
	return a
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	chart := os.Args[1]
	all := read(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[2:] {
		all = overlay(all, read(path))
	}
	about := read(filepath.Join(chart, "Chart.yaml"))
	data := values{
		"Values":  all,
		"Release": values{"Name": "test", "Namespace": "default", "Service": "Helm"},
		"Chart":   values{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
	}

	root := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["include"] = func(name string, with interface{}) (string, error) {
		var out bytes.Buffer
		err := root.ExecuteTemplate(&out, name, with)
		return out.String(), err
	}
	functions["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, fmt.Errorf("%s", message)
		}
		return value, nil
	}
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	root.Funcs(functions)

	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		_, err = root.New(filepath.Base(path)).Parse(string(text))
		check(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, ".tpl") {
			continue
		}
		var out bytes.Buffer
		check(root.ExecuteTemplate(&out, filepath.Base(path), data))
		fmt.Printf("---\n# %s\n%s\n", filepath.Base(path), out.String())
	}
}
