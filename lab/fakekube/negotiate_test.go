package fakekube

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPeopleGetIndentedJSON(t *testing.T) {
	f := New()
	for _, c := range []struct {
		query, agent string
		isIndented   bool
	}{
		{"", "kubectl/v1.35.0", false},
		{"", "curl/8.0", true},
		{"?pretty=false", "curl/8.0", false},
		{"?pretty=true", "kubectl/v1.35.0", true},
		{"?pretty=1", "", true},
		{"?pretty", "", false},
	} {
		r := httptest.NewRequest("GET", "/api/v1/pods"+c.query, nil)
		r.Header.Set("User-Agent", c.agent)
		answer := serve(f, r).Body.String()
		if got := strings.Contains(answer, "\n  \"kind\""); got != c.isIndented {
			t.Errorf("%q with %q: %s", c.agent, c.query, answer)
		}
	}
}

func TestProtobufListEqualsConvertedJSON(t *testing.T) {
	f := New()
	addPods(f, 3)
	for _, accept := range []string{mediaProtobuf, mediaProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
		for _, query := range []string{"", "?limit=2"} {
			r := httptest.NewRequest("GET", "/api/v1/pods"+query, nil)
			inJSON := r.Clone(t.Context())
			inJSON.Header.Set("Accept", strings.Replace(accept, mediaProtobuf, mediaJSON, 1))
			want := string(Protobuf(serve(f, inJSON).Body.Bytes()))
			r.Header.Set("Accept", accept)
			if got := serve(f, r).Body.String(); got != want {
				t.Errorf("%s%s: %q, want %q", accept, query, got, want)
			}
		}
	}
}

func TestLargeAnswersAreCompressedOnRequest(t *testing.T) {
	f := New()
	addPods(f, 1000)
	for _, c := range []struct {
		path, accepts string
		isCompressed  bool
	}{
		{"/api/v1/pods", "gzip", true},
		{"/api/v1/pods", "br , gzip", true},
		{"/api/v1/pods", "gzip;q=0.5", false},
		{"/api/v1/pods", "*", false},
		{"/api/v1/pods", "", false},
		{"/api/v1/pods?limit=10", "gzip", false},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		r.Header.Set("Accept-Encoding", c.accepts)
		if got := serve(f, r).Header().Get("Content-Encoding") == "gzip"; got != c.isCompressed {
			t.Errorf("%s is compressed for %q: %v", c.path, c.accepts, got)
		}
	}
}
