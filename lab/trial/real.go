package trial

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
)

// realCluster is a cluster that is not ours. Each row creates nodes and pods of its own there, sees only these, and
// removes them.
type realCluster struct {
	ctx        context.Context
	config     *kubeconfig.Config
	credential *kubeconfig.Credential
	client     *kube.Client
	transport  *http.Transport // of the requests of programs
}

func openRealCluster(ctx context.Context, file, contextName string) (*realCluster, error) {
	config, err := kubeconfig.Load(ctx, kubeconfig.Options{
		Kubeconfig: file,
		Context:    contextName,
		Getenv:     os.Getenv,
	})
	if err != nil {
		return nil, err
	}
	credential, err := config.Credential(ctx, nil)
	if err != nil {
		config.Close()
		return nil, err
	}
	return &realCluster{
		ctx:        ctx,
		config:     config,
		credential: credential,
		client:     kube.NewClient(config, kube.Options{FieldManager: "trial"}),
		transport:  &http.Transport{TLSClientConfig: credential.TLS, ForceAttemptHTTP2: true},
	}, nil
}

func (c *realCluster) close() {
	c.transport.CloseIdleConnections()
	c.client.Close()
	c.config.Close()
}

// rowLabel is the key of a label whose value says to which row an object belongs.
const rowLabel = "trial.podcount.dev/row"

// forRow lets the programs of a row work on the cluster.
func (c *realCluster) forRow(s *scene) cluster {
	name := fmt.Sprintf("trial-%06x", rand.IntN(1<<24))
	s.prefix = name + "-"
	s.fake.Upstream = &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { c.pass(r, name) },
		Transport:     c.transport,
		FlushInterval: -1, // watches must not wait
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0),
	}
	s.api = guard{s.fake, s.token, name}
	return &realRow{realCluster: c, name: name, label: s.label}
}

// pass turns a request of a program into one to the cluster. Lists and watches of pods and nodes are limited to those
// of the row.
func (c *realCluster) pass(r *httputil.ProxyRequest, row string) {
	r.SetURL(c.config.Server)
	r.Out.Header.Del("Authorization") // The guard has checked the program's token, which the cluster does not know.
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			r.Out.Header.Del(name)
		}
	}
	if c.credential.Token != "" {
		r.Out.Header.Set("Authorization", "Bearer "+c.credential.Token)
	}
	kind := path.Base(r.In.URL.Path)
	if r.In.Method == "GET" && (kind == "pods" || kind == "nodes") {
		query := r.Out.URL.Query()
		selectors := strings.TrimPrefix(query.Get("labelSelector")+","+rowLabel+"="+row, ",")
		query.Set("labelSelector", selectors)
		r.Out.URL.RawQuery = query.Encode()
	}
}

// guard lets only the programs of a row use the credential for the cluster, and lets them write only what belongs to
// the row, Events, and reviews of rights.
type guard struct {
	api   http.Handler
	token string
	row   string
}

func (g guard) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	given, isBearer := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer ")
	isKnown := isBearer && subtle.ConstantTimeCompare([]byte(given), []byte(g.token)) == 1
	rt := fakekube.RouteOf(q)
	isOurs := strings.HasPrefix(rt.Name, g.row+"-") || rt.Verb == "create" && rt.Resource == "leases"
	switch {
	case !isKnown:
		g.refuse(w, http.StatusUnauthorized, "Unauthorized", "this is the trial's door, and needs the program's token")
	case isWrite(rt) && !isOurs && rt.Resource != "events" && !strings.HasSuffix(rt.Resource, "reviews"):
		g.refuse(w, http.StatusForbidden, "Forbidden", "a program on trial may write only what the trial has created")
	default:
		g.api.ServeHTTP(w, q)
	}
}

func (g guard) refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(fakekube.Status(code, reason, message, nil))
}

// realRow is a cluster as one row sees it.
type realRow struct {
	*realCluster
	name  string
	label string // that programs keep
}

const (
	nodesPath  = "/api/v1/nodes"
	podsPath   = "/api/v1/namespaces/" + namespace + "/pods"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/" + leaseNamespace + "/leases"
)

// send sends a request, and fills answer unless it is nil. It panics with an ended if that fails, because a row cannot
// go on then.
func (c *realRow) send(method, path string, body fakekube.Object, answer any) {
	if err := c.try(method, path, body, answer); err != nil {
		panic(ended{Broken, fmt.Sprintf("the trial itself could not %s %s: %v", method, path, err)})
	}
}

// try sends a request. The path may have a query. If the trial was stopped, it still works, so that objects can be
// removed.
func (c *realRow) try(method, path string, body fakekube.Object, answer any) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), time.Minute)
	defer cancel()
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return err
	}
	request := kube.Request{Method: method, API: path, Query: query}
	if body != nil {
		request.Body = body
	}
	return c.client.Send(ctx, request, func(r io.Reader) error {
		if answer == nil {
			return nil
		}
		return json.NewDecoder(r).Decode(answer)
	})
}

func (c *realRow) delete(path string) {
	c.send("DELETE", path, fakekube.Object{"gracePeriodSeconds": 0}, nil)
}

func (c *realRow) addPod(name string) {
	c.send("POST", podsPath, fakekube.Object{
		"metadata": fakekube.Object{"name": name, "labels": fakekube.Object{rowLabel: c.name}},
		"spec": fakekube.Object{
			"schedulerName":                "nobody", // it need not run
			"automountServiceAccountToken": false,
			"containers":                   []any{fakekube.Object{"name": "none", "image": "none"}},
		},
	}, nil)
}

func (c *realRow) removePod(name string) { c.delete(podsPath + "/" + name) }

func (c *realRow) addNode(name string, isControlPlane bool) {
	labels := fakekube.Object{rowLabel: c.name}
	if isControlPlane {
		labels[controlPlane] = ""
	}
	c.send("POST", nodesPath, fakekube.Object{"metadata": fakekube.Object{"name": name, "labels": labels}}, nil)
}

func (c *realRow) removeNode(name string) { c.delete(nodesPath + "/" + name) }

func (c *realRow) setLabel(node, key, value string) {
	var set any // nil removes the label
	if value != "" {
		set = value
	}
	labels := fakekube.Object{"labels": fakekube.Object{key: set}}
	c.send("PATCH", nodesPath+"/"+node, fakekube.Object{"metadata": labels}, nil)
}

func (c *realRow) labels() map[string]string {
	nodes, err := c.list(nodesPath)
	if err != nil {
		panic(ended{Broken, fmt.Sprintf("the trial itself could not list the nodes: %v", err)})
	}
	labels := map[string]string{}
	for _, node := range nodes.Items {
		labels[node.Metadata.Name] = node.Metadata.Labels[c.label]
	}
	return labels
}

// list returns the objects of a collection that belong to the row.
func (c *realRow) list(collection string) (ours objectList, err error) {
	selector := url.QueryEscape(rowLabel + "=" + c.name)
	err = c.try("GET", collection+"?labelSelector="+selector, nil, &ours)
	return ours, err
}

// objectList is what the trial reads of a list.
type objectList struct {
	Items []struct {
		Metadata struct {
			Name   string
			Labels map[string]string
		}
	}
}

func (c *realRow) leasePath() string { return leasesPath + "/" + c.name + "-" + leaseName }

func (c *realRow) holder() string {
	var lease fakekube.Object
	if c.try("GET", c.leasePath(), nil, &lease) != nil {
		return "" // there is none yet
	}
	return fakekube.TextIn(lease, "spec", "holderIdentity")
}

// hold creates or changes the Lease. A merge patch needs no version.
func (c *realRow) hold(identity string) {
	lease := leaseOf(path.Base(c.leasePath()), identity)
	err := c.try("PATCH", c.leasePath(), lease, nil)
	if kube.StatusOf(err).Code == 404 {
		c.send("POST", leasesPath, lease, nil)
		return
	}
	if err != nil {
		panic(ended{Broken, fmt.Sprintf("the trial itself could not renew the Lease: %v", err)})
	}
}

// changed is never closed, because the trial has no watch. The scene looks again after a moment anyway.
func (c *realRow) changed() <-chan struct{} { return nil }

// remove removes what the row has created, and the Lease of its programs. It deletes each object by its name, and never
// a collection: if a selector were lost on the way, that would delete what others have in the cluster.
func (c *realRow) remove() {
	paths := []string{c.leasePath()}
	for _, collection := range []string{podsPath, nodesPath} {
		ours, err := c.list(collection)
		if err != nil {
			log.Printf("trial: what has the label %s=%s may be left in the cluster: %v", rowLabel, c.name, err)
		}
		for _, o := range ours.Items {
			if strings.HasPrefix(o.Metadata.Name, c.name+"-") {
				paths = append(paths, collection+"/"+o.Metadata.Name)
			}
		}
	}
	for _, path := range paths {
		err := c.try("DELETE", path, fakekube.Object{"gracePeriodSeconds": 0}, nil)
		if err != nil && kube.StatusOf(err).Code != 404 {
			log.Printf("trial: %s is left in the cluster: %v", path, err)
		}
	}
}
