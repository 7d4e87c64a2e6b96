package fakekube

import (
	"bytes"
	"testing"
)

func TestHelpersActLikeClients(t *testing.T) {
	f := New()
	f.AddNode("n", "a=1", "b")
	next := f.NextChange()
	setLabel(f, "n", "a", nil)
	setLabel(f, "n", "b", "2")
	wantLabel(t, f, "n", "a", "-")
	wantLabel(t, f, "n", "b", "2")
	wantLabel(t, f, "nowhere", "b", "-")
	select {
	case <-next:
	default:
		t.Error("the change was not signaled")
	}
	f.AddPod("default", "p", "", "app=x", "y")
	wantNumber(t, "pods", len(f.Selected("pods", "default", "app=x,y=", "")), 1)
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
