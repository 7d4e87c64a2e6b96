package fakekube

import (
	"strings"
	"testing"
)

func TestTokensOfServiceAccountsHaveTheirRights(t *testing.T) {
	f := New()
	f.Allow("admin")
	f.PutJSON("serviceaccounts", `{"metadata":{"namespace":"default","name":"a"}}`)
	f.PutJSON("clusterroles", `{"metadata":{"name":"r"},`+
		`"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`)
	f.PutJSON("clusterrolebindings", `{"metadata":{"name":"b"},"roleRef":{"name":"r"},`+
		`"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"a"}]}`)
	as := func(token, method, target string) (int, Object) {
		t.Helper()
		r := newRequest(method, target, token)
		w := serve(f, r)
		answer, _ := parsed(w.Body.String()).(Object)
		return w.Code, answer
	}
	code, answer := as("admin", "POST", "/api/v1/namespaces/default/serviceaccounts/a/token")
	status, _ := answer["status"].(Object)
	token := TextIn(status, "token")
	if code != 201 || !f.Lets(token) {
		t.Fatalf("%d %v", code, answer)
	}
	if code, answer = as("admin", "GET", "/api/v1/namespaces/default/serviceaccounts/a/token"); code != 405 {
		t.Errorf("GET of a token: %d %v", code, answer)
	}
	if code, answer = as(token, "GET", "/api/v1/pods"); code != 200 {
		t.Errorf("what it may do: %d %v", code, answer)
	}
	code, answer = as(token, "GET", "/api/v1/nodes")
	if code != 403 || !strings.Contains(TextIn(answer, "message"), `"system:serviceaccount:default:a" cannot list`) {
		t.Errorf("what it may not do: %d %v", code, answer)
	}
	if code, answer = as("other", "GET", "/api/v1/pods"); code != 401 {
		t.Errorf("a stranger: %d %v", code, answer)
	}
	f.Remove("serviceaccounts", Key{"default", "a"})
	if code, answer = as(token, "GET", "/api/v1/pods"); code != 401 {
		t.Errorf("a token that has outlived its account: %d %v", code, answer)
	}
}
