package fakekube

import (
	"bytes"
	"testing"
)

func TestHelpersActLikeClients(t *testing.T) {
	f := New()
	f.AddNode("n", "a=1", "b")
	next := f.NextChange()
	f.SetLabel("n", "a", nil)
	f.SetLabel("n", "b", "2")
	wantLabel(t, f, "n", "a", "-")
	wantLabel(t, f, "n", "b", "2")
	wantLabel(t, f, "nowhere", "b", "-")
	select {
	case <-next:
	default:
		t.Error("the change was not signaled")
	}
	f.AddPodWithLabels("p", Object{"app": "x"})
	wantNumber(t, "pods", len(f.Selected("pods", "default", "app=x", "")), 1)
}

func TestAddCountKeepsTheStatus(t *testing.T) {
	f := New()
	f.InstallCRD(&CRD{HasStatus: true})
	f.PutJSON("counts", `{"metadata":{"namespace":"default","name":"c"},"spec":{},"status":{"healthy":true,"count":3}}`)
	o := f.AddCount("c", `{"count":4}`)
	if got := f.CountStatus("c"); got != "true 3 <nil>" || MetaOf(o)["generation"] != 2.0 {
		t.Errorf("status %s, generation %v", got, MetaOf(o)["generation"])
	}
}

func TestPodWatchInProtobuf(t *testing.T) {
	f := New()
	f.AddPod("default", "web-0", "n")
	r := newRequest("GET", "/api/v1/pods?watch=true&resourceVersion=202&timeoutSeconds=1", "")
	r.Header.Set("Accept", mediaProtobuf+",application/json")
	w := serve(f, r)
	want := mediaProtobuf + ";stream=watch"
	if got := w.Header().Get("Content-Type"); got != want || !bytes.Contains(w.Body.Bytes(), []byte("web-0")) {
		t.Errorf("%s %q, want %s", got, w.Body, want)
	}
}
