package fakekube

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The files of testdata/protobuf are objects as a real server answered them, in JSON and in protobuf.
func TestProtobufIsTheRealServersByteForByte(t *testing.T) {
	files, err := filepath.Glob("../../testdata/protobuf/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, ".json") + ".pb")
			if err != nil {
				t.Fatal(err)
			}
			got := Protobuf(text)
			if bytes.Equal(got, want) {
				return
			}
			t.Errorf("the fields differ:\n%s", diff(fieldsIn(want[4:], ""), fieldsIn(got[4:], "")))
		})
	}
}

// fieldsIn is what a message says, a line for each field. Whatever could be a message is read as one.
func fieldsIn(m []byte, path string) (all []string) {
	for len(m) > 0 {
		tag, n := binary.Uvarint(m)
		v, k := binary.Uvarint(m[n:])
		isNumber := tag&7 == 0
		isBytes := tag&7 == 2
		if n <= 0 || k <= 0 || !isNumber && !isBytes || isBytes && v > uint64(len(m)-n-k) {
			return append(all, path+" is no message")
		}
		m = m[n+k:]
		at := fmt.Sprintf("%s.%d", path, tag>>3)
		if isNumber {
			all = append(all, fmt.Sprintf("%s=%d", at, v))
			continue
		}
		all = append(all, fmt.Sprintf("%s=%q", at, m[:v]))
		inner := fieldsIn(m[:v], at)
		isMessage := len(inner) > 0 && !strings.HasSuffix(inner[len(inner)-1], " is no message")
		if isMessage {
			all = append(all[:len(all)-1], at+":")
			all = append(all, inner...)
		}
		m = m[v:]
	}
	return all
}
