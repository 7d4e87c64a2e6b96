// Provenance checks a file with the types of in-toto's own module: that it is a Statement, that its predicate is a
// Provenance of SLSA, and that it has all that both specifications demand. An unknown field is an error.
//
//	provenance FILE
package main

import (
	"fmt"
	"os"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

func main() {
	if err := check(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
	fmt.Println(os.Args[1], "is valid")
}

func check(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var statement intoto.Statement
	if err := protojson.Unmarshal(text, &statement); err != nil {
		return err
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	predicate, err := protojson.Marshal(statement.Predicate)
	if err != nil {
		return err
	}
	var provenance slsa.Provenance
	if err := protojson.Unmarshal(predicate, &provenance); err != nil {
		return err
	}
	return provenance.Validate()
}
