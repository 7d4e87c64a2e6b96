package listen

import (
	"testing"

	"podcount/internal/testkit"
)

func TestLoopbackIsKnownByItsNamesAlone(t *testing.T) {
	rows := []struct {
		address string
		want    bool
	}{
		{"localhost:8081", true},
		{"LocalHost", true},
		{"127.0.0.1:8081", true},
		{"127.9.8.7", true},
		{"[::1]:8081", true},
		{"[::1]", true},
		{"::1", true},
		{"", false},
		{":8081", false},
		{"0.0.0.0:8081", false},
		{"[::]:8081", false},
		{"10.0.0.1:8081", false},
		{"podcount.example:8081", false},
		{"localhost.example:8081", false},
		{"127.0.0.1.example:8081", false},
		{"127.0.0.1.", false},
	}
	for _, row := range rows {
		t.Run(row.address, func(t *testing.T) {
			testkit.WantEqual(t, "is loopback", IsLoopback(row.address), row.want)
		})
	}
}
