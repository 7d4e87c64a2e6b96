package listen

import (
	"testing"

	"podcount/lab/testkit"
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
		{"podcount-localhost:8081", false},
		{"127.0.0.1.example:8081", false},
		{"127.0.0.1.", false},
		{"localhost.", false},
		{"LOCALHOST:65535", true},
		{"[::ffff:127.0.0.1]:8081", true},

		// What is no address at all, such as the Host of a request that no browser sends.
		{"localhost:18081.evil.example", false},
		{"127.0.0.1:80.evil.example", false},
		{"[::1]:80.evil.example", false},
		{"[::1].evil.example", false},
		{"[::1%25evil]:80", false},
		{"[::1%evil]", false},
		{"::1%evil", false},
		{"localhost:", false},
		{"localhost:-1", false},
		{"localhost:65536", false},
		{"localhost:http", false},
		{"localhost:80:80", false},
		{"user@localhost:80", false},
		{"localhost@evil.example", false},
		{"localhost/evil.example", false},
		{"[localhost]:80", false},
		{"[localhost", false},
		{"localhost]", false},
		{"[127.0.0.1]", false},
		{"::1:", false},
		{"[", false},
		{" localhost", false},
	}
	for _, row := range rows {
		testkit.WantEqual(t, "is loopback: "+row.address, IsLoopback(row.address), row.want)
	}
}
