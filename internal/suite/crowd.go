package suite

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"podcount/internal/fakekube"
	"podcount/internal/wire"
)

// Crowd is an API server with any number of pods and nodes. It makes them while it sends them, and stores none. Its
// watches are silent.
type Crowd struct {
	Pods, Nodes int

	// Labels, if set, are the labels of each pod in place of CrowdPod's.
	Labels fakekube.Object

	// Patched gets the total that the first node shows, each time that podcount writes it. Serve makes it.
	Patched chan string
}

// CrowdPod is a pod of the crowd. ###### stands for its number, and @@@@@ for the number of its node.
var CrowdPod = fakekube.Object{
	"kind": "Pod", "apiVersion": "v1",
	"metadata": fakekube.Object{
		"name":              "web-5d4f8c7b9-######",
		"namespace":         "team-7",
		"uid":               "5a2b7c1e-93d4-4f6a-8b1c-000000######",
		"resourceVersion":   "1######",
		"creationTimestamp": "2026-01-02T03:04:05Z",
		"labels":            fakekube.Object{"app": "web", "pod-template-hash": "5d4f8c7b9"},
		"annotations":       fakekube.Object{"example.com/filler": strings.Repeat("what nobody reads ", 60)},
	},
	"spec": fakekube.Object{
		"nodeName":   "node-@@@@@",
		"containers": []any{fakekube.Object{"name": "web", "image": "registry.example.com/team-7/web:v1.2.3"}},
	},
	"status": fakekube.Object{"phase": "Running"},
}

var crowdNode = fakekube.Object{
	"kind": "Node", "apiVersion": "v1",
	"metadata": fakekube.Object{
		"name":            "node-@@@@@",
		"uid":             "7f1d0a52-0c3e-4e0b-9a55-000000######",
		"resourceVersion": "1######",
		"labels":          fakekube.Object{"kubernetes.io/hostname": "node-@@@@@", "kubernetes.io/os": "linux"},
	},
}

// pod returns the template of the pods, with places for numbers as in CrowdPod.
func (c *Crowd) pod() fakekube.Object {
	if c.Labels == nil {
		return CrowdPod
	}
	pod, meta := maps.Clone(CrowdPod), maps.Clone(fakekube.MetaOf(CrowdPod))
	meta["labels"] = c.Labels
	pod["metadata"] = meta
	return pod
}

// Item is the bytes of object i.
func (c *Crowd) Item(template []byte, i int) []byte {
	b := bytes.ReplaceAll(template, []byte("######"), fmt.Appendf(nil, "%06d", i))
	return bytes.ReplaceAll(b, []byte("@@@@@"), fmt.Appendf(nil, "%05d", i%c.Nodes))
}

// list writes n objects like o, or only their metadata unless whole is set.
func (c *Crowd) list(w io.Writer, o fakekube.Object, n int, isProtobuf, whole bool) {
	if !whole {
		o = fakekube.Object{
			"kind":       "PartialObjectMetadata",
			"apiVersion": "meta.k8s.io/v1",
			"metadata":   o["metadata"],
		}
	}
	out := bufio.NewWriterSize(w, 64<<10)
	defer out.Flush()
	if !isProtobuf {
		template, _ := json.Marshal(o)
		fmt.Fprintf(out, `{"kind":"%vList","apiVersion":"%v","metadata":{"resourceVersion":"2000000"},"items":[`,
			o["kind"], o["apiVersion"])
		for i := range n {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(c.Item(template, i))
		}
		out.WriteString("]}")
		return
	}
	var meta, types, template fakekube.ProtobufMessage
	meta.Bytes(1, []byte("\x12\x072000000"))
	types.Text(1, fakekube.TextIn(o, "apiVersion"))
	types.Text(2, fakekube.TextIn(o, "kind")+"List")
	template.Bytes(2, fakekube.ProtobufObject(o))
	out.WriteString("k8s\x00")
	var head fakekube.ProtobufMessage
	head.Bytes(1, types)
	head = binary.AppendUvarint(append(head, 2<<3|2), uint64(len(meta)+n*len(template)))
	out.Write(append(head, meta...))
	for i := range n {
		out.Write(c.Item(template, i))
	}
}

func (c *Crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	isProtobuf := strings.Contains(accept, wire.Protobuf)
	mediaType := wire.JSON
	if isProtobuf {
		mediaType = wire.Protobuf
	}
	w.Header().Set("Content-Type", mediaType)
	switch {
	case r.URL.Query().Has("watch"):
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/api/v1/pods":
		c.list(w, c.pod(), c.Pods, isProtobuf, !strings.Contains(accept, "PartialObjectMetadata"))
	case r.URL.Path == "/api/v1/nodes":
		c.list(w, crowdNode, c.Nodes, isProtobuf, false)
	case r.Method == http.MethodPatch:
		var patch fakekube.Object
		json.NewDecoder(r.Body).Decode(&patch)
		name := path.Base(r.URL.Path)
		labels := fakekube.MetaOf(patch)["labels"].(fakekube.Object)
		json.NewEncoder(w).Encode(fakekube.Object{"metadata": fakekube.Object{
			"name":            name,
			"uid":             fakekube.MetaOf(patch)["uid"],
			"resourceVersion": "2000001",
			"labels":          labels,
		}})
		if name == "node-00000" {
			c.Patched <- fakekube.TextIn(labels, TotalLabel)
		}
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// serve returns the arguments that lead podcount to the crowd, over TLS and HTTP/2.
func (c *Crowd) Serve(t testing.TB) (args []string) {
	c.Patched = make(chan string, 1000)
	srv := httptest.NewUnstartedServer(c)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(fakekube.Kubeconfig(srv.URL, ca, "token: t")), 0o600)
	return []string{"-kubeconfig", file, "-pod-events", "off", "-total-nodes", "kubernetes.io/hostname=node-00000"}
}

// body is a list of the crowd.
func (c *Crowd) Body(isProtobuf, whole bool) []byte {
	var b bytes.Buffer
	c.list(&b, c.pod(), c.Pods, isProtobuf, whole)
	return b.Bytes()
}
