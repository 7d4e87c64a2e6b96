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
	"path"
	"path/filepath"
	"strings"
	"testing"

	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/protobuf"
	"podcount/lab/testkit"
)

// Crowd is an API server with any number of pods and nodes. It stores none of them: it generates each while it sends a
// list. Its watches send nothing.
type Crowd struct {
	Pods, Nodes int

	// Labels, if set, replaces the labels of CrowdPod.
	Labels fakekube.Object

	// Patched receives the total each time that podcount writes it to the first node. Serve creates the channel.
	Patched chan string
}

// CrowdPod is the template of all pods. ###### stands for the number of the pod, and @@@@@ for the number of its node.
var CrowdPod = fakekube.Object{
	"kind": "Pod", "apiVersion": "v1",
	"metadata": fakekube.Object{
		"name":              "web-5d4f8c7b9-######",
		"namespace":         "team-7",
		"uid":               "5a2b7c1e-93d4-4f6a-8b1c-000000######",
		"resourceVersion":   "1######",
		"creationTimestamp": "2026-01-02T03:04:05Z",
		"labels":            fakekube.Object{"app": "web", "pod-template-hash": "5d4f8c7b9"},
		"annotations":       fakekube.Object{"example.com/filler": strings.Repeat("podcount skips it ", 60)},
	},
	"spec": fakekube.Object{
		"nodeName":   "node-@@@@@",
		"containers": []any{fakekube.Object{"name": "web", "image": "registry.example.com/team-7/web:v1.2.3"}},
	},
	"status": fakekube.Object{"phase": "Running"},
}

// crowdNode is the template of all nodes, with the same placeholders as CrowdPod.
var crowdNode = fakekube.Object{
	"kind": "Node", "apiVersion": "v1",
	"metadata": fakekube.Object{
		"name":            "node-@@@@@",
		"uid":             "7f1d0a52-0c3e-4e0b-9a55-000000######",
		"resourceVersion": "1######",
		"labels":          fakekube.Object{"kubernetes.io/hostname": "node-@@@@@", "kubernetes.io/os": "linux"},
	},
}

// Serve starts the server, with TLS and HTTP/2, until the test ends. It returns the flags that lead podcount there.
func (c *Crowd) Serve(t testing.TB) (args []string) {
	c.Patched = make(chan string, 1000)
	srv := httptest.NewUnstartedServer(c)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(srv.URL, ca, "token: t")})
	return []string{
		"-kubeconfig", filepath.Join(dir, "config"),
		"-pod-events", "off",
		"-total-nodes", "kubernetes.io/hostname=node-00000",
	}
}

// ServeHTTP answers lists, watches and patches as an API server does. It accepts every other request.
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
		pod := c.pod()
		if strings.Contains(accept, "PartialObjectMetadata") {
			pod = metadataOf(pod)
		}
		c.list(w, pod, c.Pods, isProtobuf)
	case r.URL.Path == "/api/v1/nodes":
		c.list(w, metadataOf(crowdNode), c.Nodes, isProtobuf)
	case r.Method == http.MethodPatch:
		c.patch(w, r)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// patch answers the patch of a node.
func (c *Crowd) patch(w http.ResponseWriter, r *http.Request) {
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
}

// Body returns a list of the pods, either whole or with only their metadata.
func (c *Crowd) Body(isProtobuf, isWhole bool) []byte {
	pod := c.pod()
	if !isWhole {
		pod = metadataOf(pod)
	}
	var b bytes.Buffer
	c.list(&b, pod, c.Pods, isProtobuf)
	return b.Bytes()
}

// pod returns the template of the pods, with c.Labels if they are set.
func (c *Crowd) pod() fakekube.Object {
	if c.Labels == nil {
		return CrowdPod
	}
	meta := maps.Clone(fakekube.MetaOf(CrowdPod))
	meta["labels"] = c.Labels
	pod := maps.Clone(CrowdPod)
	pod["metadata"] = meta
	return pod
}

// metadataOf returns what an API server sends of an object to a client that accepts only metadata.
func metadataOf(o fakekube.Object) fakekube.Object {
	return fakekube.Object{
		"kind":       "PartialObjectMetadata",
		"apiVersion": "meta.k8s.io/v1",
		"metadata":   o["metadata"],
	}
}

// list writes a list of n objects that are made from a template.
func (c *Crowd) list(w io.Writer, template fakekube.Object, n int, isProtobuf bool) {
	out := bufio.NewWriterSize(w, 64<<10)
	defer out.Flush()
	if isProtobuf {
		c.listProtobuf(out, template, n)
	} else {
		c.listJSON(out, template, n)
	}
}

func (c *Crowd) listJSON(out *bufio.Writer, template fakekube.Object, n int) {
	item, _ := json.Marshal(template)
	fmt.Fprintf(out, `{"kind":"%vList","apiVersion":"%v","metadata":{"resourceVersion":"2000000"},"items":[`,
		template["kind"], template["apiVersion"])
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(c.Item(item, i))
	}
	out.WriteString("]}")
}

// listProtobuf writes the message runtime.Unknown, whose field 2 is the list. All items have the same length, so the
// length of the list is known before the items are made.
func (c *Crowd) listProtobuf(out *bufio.Writer, template fakekube.Object, n int) {
	var types, listMeta, item, envelope protobuf.Message
	types.Text(1, fakekube.TextIn(template, "apiVersion"))
	types.Text(2, fakekube.TextIn(template, "kind")+"List")
	listMeta.Bytes(1, []byte("\x12\x072000000")) // the field resourceVersion
	item.Bytes(2, protobuf.Object(template))

	envelope.Bytes(1, types)
	envelope = append(envelope, 2<<3|2) // the tag of field 2, which has a length
	envelope = binary.AppendUvarint(envelope, uint64(len(listMeta)+n*len(item)))
	out.WriteString("k8s\x00")
	out.Write(envelope)
	out.Write(listMeta)
	for i := range n {
		out.Write(c.Item(item, i))
	}
}

// Item returns the object with the number i, made from a template in JSON or protobuf.
func (c *Crowd) Item(template []byte, i int) []byte {
	b := bytes.ReplaceAll(template, []byte("######"), fmt.Appendf(nil, "%06d", i))
	return bytes.ReplaceAll(b, []byte("@@@@@"), fmt.Appendf(nil, "%05d", i%c.Nodes))
}
