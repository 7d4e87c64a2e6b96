package fakekube

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestEveryoneIsAdminUntilAllow(t *testing.T) {
	f := New()
	f.AddUser("b", "bob")
	for token, want := range map[string]int{"": 200, "any": 200, "b": 403} {
		if w := serve(f, newRequest("GET", "/api/v1/pods", token)); w.Code != want {
			t.Errorf("token %q: %d, want %d", token, w.Code, want)
		}
	}
	f.Allow("a")
	for token, want := range map[string]int{"": 403, "any": 401, "b": 401, "a": 200} {
		if w := serve(f, newRequest("GET", "/api/v1/pods", token)); w.Code != want {
			t.Errorf("token %q, after Allow: %d, want %d", token, w.Code, want)
		}
	}
}

func TestImpersonationNeedsPermission(t *testing.T) {
	f := New()
	f.AddUser("b", "bob")
	r := newRequest("GET", "/api/v1/pods", "b")
	r.Header.Set("Impersonate-User", "root")
	r.Header.Set("Impersonate-Group", "system:masters")
	w := serve(f, r)
	if w.Code != 403 || !strings.Contains(w.Body.String(), `User \"bob\" cannot impersonate resource \"users\"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.Header.Set("Authorization", "Bearer anybody")
	if w := serve(f, r); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestServiceAccountTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Allow("admin")
		f.PutJSON("serviceaccounts", `{"metadata":{"namespace":"default","name":"a"}}`)
		r := newRequest("POST", "/api/v1/namespaces/default/serviceaccounts/a/token", "admin")
		r.Body = io.NopCloser(strings.NewReader(`{"spec":{"expirationSeconds":600}}`))
		answer, _ := parsed(serve(f, r).Body.String()).(Object)
		token := TextIn(objectIn(answer, "status"), "token")
		<-time.After(600 * time.Second)
		if w := serve(f, newRequest("GET", "/apis", token)); w.Code != 200 {
			t.Errorf("after 600 s: %d %s", w.Code, w.Body)
		}
		<-time.After(time.Second)
		if w := serve(f, newRequest("GET", "/apis", token)); w.Code != 401 {
			t.Errorf("after 601 s: %d %s", w.Code, w.Body)
		}
	})
}

func TestTokenRequestsMayBeProtobuf(t *testing.T) {
	f := New()
	f.Allow("admin")
	f.PutJSON("serviceaccounts", `{"metadata":{"namespace":"default","name":"a"}}`)
	body := Protobuf([]byte(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1",` +
		`"spec":{"audiences":["a"],"expirationSeconds":700}}`))
	r := newRequest("POST", "/api/v1/namespaces/default/serviceaccounts/a/token", "admin")
	r.Header.Set("Content-Type", mediaProtobuf)
	r.Header.Set("Accept", mediaProtobuf)
	r.Body = io.NopCloser(bytes.NewReader(body))
	w := serve(f, r)
	answer, err := objectInProtobuf(w.Body.Bytes())
	if w.Code != 201 || err != nil {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	token := TextIn(objectIn(answer, "status"), "token")
	if seconds := objectIn(answer, "spec")["expirationSeconds"]; seconds != float64(700) || token == "" {
		t.Errorf("%v", answer)
	}
	if knowsToken(f, token) {
		t.Error("a token for another audience is taken")
	}
}

func TestInvalidTokensAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.PutJSON("serviceaccounts", `{"metadata":{"namespace":"default","name":"a"}}`)
		for range 10 {
			wantAnswer(t, f, "POST /api/v1/namespaces/default/serviceaccounts/a/token", "{}", 201, "")
			<-time.After(2 * time.Hour)
		}
		testkit.WantNumber(t, "tokens", len(f.tokens), 1)
	})
}
