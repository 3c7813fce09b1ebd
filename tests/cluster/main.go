// One binary for a whole Kubernetes and for what holds it. The name it is called by, or its first argument, says what to be:
// a component of Kubernetes, the guard that stands outside the namespaces, or pid 1 inside them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	_ "time/tzdata"
)

func main() {
	name := filepath.Base(os.Args[0])
	if _, known := roles[name]; !known && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	role, known := roles[name]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown role:", name)
		os.Exit(2)
	}
	if err := role(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

var roles map[string]func() error

func init() {
	roles = map[string]func() error{"guard": guard, "init": pid1}
	for name, component := range components {
		roles[name] = component
	}
}
