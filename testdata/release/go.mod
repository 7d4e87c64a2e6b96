module podcount/testdata/release

go 1.25

require (
	github.com/in-toto/attestation v1.2.0
	google.golang.org/protobuf v1.36.12
)
