package main

// watch.go owns everything that is spoken to the API server: where it is and who we are (kubeconfig, service account),
// TLS and tokens, the one request function, the Status error, lists, watches, and the reflector that keeps a store equal
// to the server. It counts nothing and decides nothing.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config says where the API server is and who we are to it.
type Config struct {
	Source string // where this was found
	Server *url.URL
	TLS    *tls.Config
	// Token returns the bearer token, "" for none. refused is a token that the server has just refused, or "": where
	// the token in hand is that one, it is read anew. Safe for concurrent use.
	Token func(refused string) (string, error)
}

// serviceAccount is where a pod has its service account's token and CA.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// LoadConfig finds the cluster: the file kubeconfig, $KUBECONFIG, the service account (in accountDir) of the pod that we
// run in, or ~/.kube/config, in that order. contextName picks a context of the file, master overrides the server's
// address. Errors name the file and the field.
func LoadConfig(kubeconfig, contextName, master, accountDir string, getenv func(string) string, log *Log) (*Config, error) {
	var a access
	var err error
	host, home := getenv("KUBERNETES_SERVICE_HOST"), filepath.Join(getenv("HOME"), ".kube", "config")
	_, homeErr := os.Stat(home)
	if getenv("HOME") == "" {
		homeErr = errors.New("HOME is not set")
	}
	_, accountErr := os.Stat(filepath.Join(accountDir, "token"))
	if host == "" {
		accountErr = errors.New("KUBERNETES_SERVICE_HOST is not set, so this is no pod")
	}
	switch {
	case kubeconfig != "":
		a, err = readKubeconfigs([]string{kubeconfig}, contextName)
	case getenv("KUBECONFIG") != "":
		a, err = readKubeconfigs(filepath.SplitList(getenv("KUBECONFIG")), contextName)
	case accountErr == nil && contextName == "":
		a = access{
			source: "the pod's service account", server: "https://" + net.JoinHostPort(host, cmp.Or(getenv("KUBERNETES_SERVICE_PORT"), "443")),
			caFile: filepath.Join(accountDir, "ca.crt"), tokenFile: filepath.Join(accountDir, "token"),
		}
	case homeErr == nil:
		a, err = readKubeconfigs([]string{home}, contextName)
	case contextName != "":
		err = fmt.Errorf("-context %s: there is no kubeconfig that could have it: give -kubeconfig, or set KUBECONFIG (%w)", contextName, homeErr)
	case master == "":
		err = fmt.Errorf("no cluster found: give -kubeconfig or -master, or set KUBECONFIG (%w; %w)", accountErr, homeErr)
	}
	if err != nil {
		return nil, err
	}
	if master != "" {
		a.server, a.source = master, strings.TrimSuffix("-master, "+a.source, ", ")
	}
	return a.config(log)
}

// access is one cluster and one user, as found: of a file and its contents, the contents win, but for the token.
type access struct {
	source                    string
	server, serverName        string
	caFile, certFile, keyFile string
	ca, cert, key             []byte
	token, tokenFile          string
}

func (a *access) config(log *Log) (*Config, error) {
	if !strings.Contains(a.server, "://") {
		a.server = "https://" + a.server
	}
	u, err := url.Parse(a.server)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.User != nil {
		if u == nil {
			u = &url.URL{}
		}
		return nil, fmt.Errorf("%s: the server's address (%s://%s) must be https://HOST[:PORT][/PATH]", a.source, u.Scheme, u.Host)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && (a.token != "" || a.tokenFile != "") && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s: a token is not sent to %s over plain http: use https", a.source, u.Host)
	}
	cfg := &Config{Source: a.source, Server: u, TLS: &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.serverName}}
	for _, f := range []struct {
		file string
		data *[]byte
	}{{a.caFile, &a.ca}, {a.certFile, &a.cert}, {a.keyFile, &a.key}} {
		if f.file != "" && len(*f.data) == 0 {
			if *f.data, err = os.ReadFile(f.file); err != nil {
				return nil, fmt.Errorf("%s: %w", a.source, err)
			}
		}
	}
	if len(a.ca) > 0 {
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(a.ca) {
			return nil, fmt.Errorf("%s: no certificate in certificate-authority%s", a.source, map[bool]string{true: "-data", false: " " + a.caFile}[a.caFile == ""])
		}
	}
	if len(a.cert) > 0 || len(a.key) > 0 {
		pair, err := tls.X509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, fmt.Errorf("%s: client-certificate and client-key: %w", a.source, err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	cfg.Token = func(string) (string, error) { return a.token, nil }
	if a.tokenFile != "" {
		cfg.Token = tokenFrom(a.tokenFile, log)
		if _, err := cfg.Token(""); err != nil {
			return nil, fmt.Errorf("%s: %w", a.source, err)
		}
	}
	return cfg, nil
}

// tokenFrom is a Config.Token that reads a file, anew every minute (kubelet replaces it well before it ends). What
// cannot be read leaves the old token in force.
func tokenFrom(file string, log *Log) func(string) (string, error) {
	var mu sync.Mutex // guards both
	var token string
	var read time.Time
	return func(refused string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if token != "" && token != refused && time.Since(read) < time.Minute {
			return token, nil
		}
		read = time.Now()
		data, err := os.ReadFile(file)
		fresh := strings.TrimSpace(string(data))
		if err == nil && fresh == "" {
			err = fmt.Errorf("token file %s is empty", file)
		}
		switch {
		case err == nil:
			token = fresh
		case token == "":
			return "", err
		default:
			log.Complain("cannot read the token anew, going on with the old one", err)
		}
		return token, nil
	}
}

// kubeconfig is what podcount reads of a kubeconfig file.
// https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Clusters       []struct {
		Name    string         `json:"name"`
		Cluster kubeconfigPart `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string         `json:"name"`
		User kubeconfigPart `json:"user"`
	} `json:"users"`
	Contexts []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
}

// kubeconfigPart is a cluster or a user. dir is its file's: relative paths begin there.
type kubeconfigPart struct {
	Server        string `json:"server"`
	TLSServerName string `json:"tls-server-name"`
	CAFile        string `json:"certificate-authority"`
	CA            []byte `json:"certificate-authority-data"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	CertFile      string `json:"client-certificate"`
	Cert          []byte `json:"client-certificate-data"`
	KeyFile       string `json:"client-key"`
	Key           []byte `json:"client-key-data"`
	Token         string `json:"token"`
	TokenFile     string `json:"tokenFile"`

	// Not to be passed over in silence.
	ProxyURL     any `json:"proxy-url"`
	Username     any `json:"username"`
	Password     any `json:"password"`
	As           any `json:"as"`
	AsUID        any `json:"as-uid"`
	AsGroups     any `json:"as-groups"`
	AsExtra      any `json:"as-user-extra"`
	Exec         any `json:"exec"`
	AuthProvider any `json:"auth-provider"`

	dir string
}

func (p *kubeconfigPart) path(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(p.dir, file)
}

// readKubeconfigs reads one context of the files together; where two set the same name, the first counts.
func readKubeconfigs(files []string, contextName string) (a access, err error) {
	source := strings.Join(files, string(filepath.ListSeparator))
	clusters, users, contexts := map[string]kubeconfigPart{}, map[string]kubeconfigPart{}, map[string][2]string{}
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	missing, current := 0, ""
	for _, file := range slices.Backward(files) {
		var k kubeconfig
		if err := readKubeconfig(file, &k); err != nil {
			if missing++; errors.Is(err, os.ErrNotExist) && missing < len(files) {
				continue // as kubectl does with a list
			}
			return a, err
		}
		current = cmp.Or(k.CurrentContext, current)
		for _, c := range k.Clusters {
			c.Cluster.dir = filepath.Dir(file)
			clusters[c.Name] = c.Cluster
		}
		for _, u := range k.Users {
			u.User.dir = filepath.Dir(file)
			users[u.Name] = u.User
		}
		for _, c := range k.Contexts {
			contexts[c.Name] = [2]string{c.Context.Cluster, c.Context.User}
		}
	}
	contextName = cmp.Or(contextName, current)
	if contextName == "" {
		return a, fmt.Errorf("%s: no current-context: name one with -context", source)
	}
	names, ok := contexts[contextName]
	if !ok {
		return a, fmt.Errorf("%s: there is no context %q", source, contextName)
	}
	cluster, ok := clusters[names[0]]
	if !ok {
		return a, fmt.Errorf("%s: context %q: there is no cluster %q", source, contextName, names[0])
	}
	user, ok := users[names[1]]
	if !ok && names[1] != "" {
		return a, fmt.Errorf("%s: context %q: there is no user %q", source, contextName, names[1])
	}
	for field, value := range map[string]any{
		"proxy-url": cluster.ProxyURL, "exec": user.Exec, "auth-provider": user.AuthProvider, "username": user.Username, "password": user.Password,
		"as": user.As, "as-uid": user.AsUID, "as-groups": user.AsGroups, "as-user-extra": user.AsExtra, "insecure-skip-tls-verify": cluster.Insecure,
	} {
		if value != nil && value != "" && value != false {
			return a, fmt.Errorf("%s: context %q: %s is not supported: use a certificate-authority, and a token, tokenFile or client-certificate", source, contextName, field)
		}
	}
	return access{
		source: source + ", context " + contextName, server: cluster.Server, serverName: cluster.TLSServerName,
		caFile: cluster.path(cluster.CAFile), ca: cluster.CA, certFile: user.path(user.CertFile), cert: user.Cert,
		keyFile: user.path(user.KeyFile), key: user.Key, token: user.Token, tokenFile: user.path(user.TokenFile),
	}, nil
}

func readKubeconfig(file string, k *kubeconfig) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		tree, err := parseYAML(string(text))
		if err != nil {
			return fmt.Errorf("%s:%w", file, err)
		}
		if text, err = json.Marshal(tree); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := json.Unmarshal(text, k); errors.As(err, new(*json.UnmarshalTypeError)) {
		return fmt.Errorf("%s: %w (a text that looks like a number, or like true, has to be quoted)", file, err)
	} else if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var names []string
	for _, c := range k.Clusters {
		names = append(names, "cluster "+c.Name)
	}
	for _, u := range k.Users {
		names = append(names, "user "+u.Name)
	}
	for _, c := range k.Contexts {
		names = append(names, "context "+c.Name)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("%s: the %s is there twice", file, name)
		}
	}
	return nil
}

// Status is the error that the API server answers, or what an answer without one amounts to: the API's own Status.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		Causes []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
			Field   string `json:"field"`
		} `json:"causes"`
		RetryAfterSeconds int `json:"retryAfterSeconds"`
	} `json:"details"`

	call call          // what was asked
	wait time.Duration // the header Retry-After
}

func (s *Status) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, cmp.Or(s.Reason, http.StatusText(s.Code)))) + ": " + s.Message
	// An admission plugin's refusal, or that of a namespace that is being deleted, is no question of rights.
	if s.Code == http.StatusForbidden && strings.Contains(s.Message, " cannot "+s.call.verb+" ") {
		text += fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])", s.call.group, s.call.resource, s.call.verb)
	}
	return text
}

// retryAfter is how long the server asked us, with an error (429, 503), to wait; 0 where it did not.
func retryAfter(err error) time.Duration {
	s := statusIn(err)
	return max(s.wait, time.Duration(min(max(s.Details.RetryAfterSeconds, 0), 3600))*time.Second)
}

// statusIn returns the Status that err is or wraps; one with the Code 0 where the server did not answer.
func statusIn(err error) Status {
	if s := (*Status)(nil); errors.As(err, &s) {
		return *s
	}
	return Status{}
}

// isStatus reports whether err is a Status with this code and reason.
func isStatus(err error, code int, reason string) bool {
	s := statusIn(err)
	return s.Code == code && s.Reason == reason
}

// hasCause reports whether one of the causes that the Status details has this reason or is about this field.
func (s Status) hasCause(reasonOrField string) bool {
	for _, c := range s.Details.Causes {
		if c.Reason == reasonOrField || c.Field == reasonOrField {
			return true
		}
	}
	return false
}

// isExpired reports whether err says that a resourceVersion or a continue token is too old.
func isExpired(err error) bool {
	s := statusIn(err)
	return s.Code == http.StatusGone || s.Reason == "Expired" || s.Reason == "Gone"
}

// call is a request in the words of RBAC and of error messages.
type call struct{ verb, group, resource, object string }

func (c call) String() string {
	return strings.TrimSpace(c.verb + " " + strings.TrimSuffix(c.resource+"/"+c.object, "/"))
}

// callOf reads a call from a request: /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NS/]RESOURCE[/NAME[/SUB]].
func callOf(method, path string, query url.Values) (c call) {
	p := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(p) > 2 && p[0] == "api":
		p = p[2:]
	case len(p) > 3 && p[0] == "apis":
		c.group, p = p[1], p[3:]
	}
	namespace := ""
	if len(p) > 2 && p[0] == "namespaces" {
		namespace, p = p[1]+"/", p[2:]
	}
	c.resource = p[0]
	if len(p) > 1 {
		c.object = namespace + p[1]
	}
	if len(p) > 2 {
		c.resource += "/" + p[2]
	}
	switch {
	case query.Get("watch") != "":
		c.verb = "watch"
	case method == http.MethodGet && len(p) == 1:
		c.verb = "list"
	default:
		c.verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
	}
	return c
}

// requestTimeout bounds a request that is not a list or a watch: what the API server itself allows, and a little.
// silence is how long a list or a watch may send nothing: a watch has a bookmark a minute, two after a server's restart.
const (
	requestTimeout = 65 * time.Second
	silence        = 150 * time.Second
	answerLimit    = 64 << 20 // bytes of an answer that is held whole
)

var errSilent = fmt.Errorf("nothing was heard for %v", silence)

// Client speaks to one API server, as one user. Safe for concurrent use.
type Client struct {
	base  *url.URL
	http  *http.Client
	token func(refused string) (string, error)
	log   *Log
}

// Dialer opens connections; nil stands for the net package's.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// NewClient makes a client for what cfg says. It sends nothing yet.
func NewClient(cfg *Config, dial Dialer, log *Log) *Client {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		TLSClientConfig:     cfg.TLS,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		// With a TLS configuration of one's own, HTTP/2 is off unless it is asked for. Its pings notice a connection
		// that broke silently; without them a watch on it would hang until silence.
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	if dial == nil {
		transport.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	// A redirect could lead a token elsewhere, and no API server sends one.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: cfg.Server, http: &http.Client{Transport: transport, CheckRedirect: noRedirect}, token: cfg.Token, log: log}
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// request is one request. Accept is application/json where it is empty.
type request struct {
	method, path string
	query        url.Values
	body         any // as JSON; a PATCH is a merge patch
	accept       string
}

// do sends one request and returns a 2xx answer, whose body the caller closes; anything else is an error, a *Status where
// the server answered. It never retries but once after a 401, with credentials read anew: the loops above it do, each
// with its own backoff, and honour retryAfter.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	what := callOf(r.method, r.path, r.query)
	token, err := c.token("")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	for again := true; ; again = false {
		resp, err := c.send(ctx, r, body, token)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		if resp.StatusCode/100 == 2 {
			return resp, nil
		}
		status := statusOf(resp, what)
		if again && status.Code == http.StatusUnauthorized {
			if fresh, err := c.token(token); err == nil && fresh != token {
				token = fresh
				continue
			}
		}
		return nil, fmt.Errorf("%s: %w", what, status)
	}
}

// send makes one exchange, with a line at -v 6.
func (c *Client) send(ctx context.Context, r request, body []byte, token string) (*http.Response, error) {
	u := *c.base
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+r.path, r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", cmp.Or(r.accept, "application/json"))
	req.Header.Set("User-Agent", "podcount/"+version+" ("+runtime.GOOS+"/"+runtime.GOARCH+")")
	if body != nil {
		req.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[r.method == http.MethodPatch])
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	start := time.Now()
	resp, err := c.http.Do(req)
	if c.log.Enabled(ctx, levelRequest) {
		status := ""
		if resp != nil {
			status = resp.Status
		}
		c.log.Log(ctx, levelRequest, r.method+" "+u.RequestURI(), "status", status, "took", time.Since(start).Round(time.Microsecond))
	}
	var uerr *url.Error
	if errors.As(err, &uerr) {
		err = uerr.Err // the URL says nothing that verb and object do not
	}
	return resp, err
}

// statusOf makes a Status of an answer that is not 2xx, and closes it. The body may be a Status, plain text (a 429 of
// priority and fairness), or some proxy's page.
func statusOf(resp *http.Response, what call) *Status {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	s := &Status{}
	if json.Unmarshal(body, s) != nil || s.Code == 0 {
		text := strings.Join(strings.Fields(string(body)), " ")
		*s = Status{Message: strconv.Quote(text[:min(len(text), 200)])}
	}
	s.Code, s.call = resp.StatusCode, what
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // never a date here
	s.wait = time.Duration(min(max(seconds, 0), 3600)) * time.Second
	return s
}

// Send makes one request of a small answer, which it decodes into answer unless that is nil. A body goes as JSON; with
// PATCH it is a merge patch. The answer to a PATCH of an object is asked for as metadata alone. It takes requestTimeout at most.
// https://kubernetes.io/docs/reference/using-api/api-concepts/
func (c *Client) Send(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r := request{method: method, path: path, body: body, query: url.Values{}}
	if body != nil {
		r.query.Set("fieldManager", "podcount")
	}
	if method == http.MethodPatch {
		r.accept = metadataOnly("PartialObjectMetadata")
	}
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	if answer == nil {
		return nil
	}
	if err = wantJSON(resp); err == nil {
		err = json.NewDecoder(io.LimitReader(resp.Body, answerLimit)).Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", callOf(method, path, nil), err)
	}
	return nil
}

// metadataOnly is the media type that asks for objects without spec and status. A server that does not honour it answers
// whole objects. https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
func metadataOnly(as string) string {
	return "application/json;as=" + as + ";g=meta.k8s.io;v=v1, application/json"
}

// drain reads what little is left, so that the connection can be used again, and closes.
func drain(body io.ReadCloser) {
	io.CopyN(io.Discard, body, 2<<10)
	body.Close()
}

func wantJSON(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	if t, _, err := mime.ParseMediaType(kind); err != nil || t != "application/json" {
		return fmt.Errorf("the answer is %q, not JSON: is this the API server?", kind)
	}
	return nil
}

// stream opens a list or a watch. The body ends with errSilent when nothing has arrived for so long.
func (c *Client) stream(ctx context.Context, r request) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &liveBody{ctx: ctx, cancel: cancel, timer: time.AfterFunc(silence, func() { cancel(errSilent) })}
	resp, err := c.do(ctx, r)
	if err == nil {
		b.body = resp.Body
		err = wantJSON(resp)
	}
	if err != nil {
		err = b.cause(err)
		b.Close()
		return nil, err
	}
	return b, nil
}

// liveBody is a body that must keep talking.
type liveBody struct {
	body   io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *liveBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if n > 0 {
		b.timer.Reset(silence)
	}
	return n, b.cause(err)
}

// cause says why our own context ended, where that is what err is about.
func (b *liveBody) cause(err error) error {
	if err != nil && err != io.EOF && b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	return err
}

func (b *liveBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	if b.body != nil {
		return b.body.Close()
	}
	return nil
}

// The reflector's numbers, as in client-go where not explained here.
const (
	reflectorBackoff = 800 * time.Millisecond
	reflectorLimit   = 30 * time.Second
	healthy          = 2 * time.Minute // without a failure, after which the backoff begins anew
	relistEvery      = time.Hour       // guards against a server that has lost an event
	shortWatch       = time.Second
	pageLimit        = 2000 // objects a page, once whole lists have failed
	slowList         = 2 * time.Second
)

var errRelist = errors.New("time for a full list")

// Reflector keeps a store equal to what the server has: it lists, then watches from the list's resourceVersion, and
// resumes from the last version that it saw. https://kubernetes.io/docs/reference/using-api/api-concepts/
type Reflector[T Object[T]] struct {
	client *Client
	kind   Kind[T]
	store  *Store[T]
	notify func(Delta[T]) // every change after the first list
	log    *Log
	synced chan struct{} // closed after the first list

	// Owned by Run, alone.
	version  string    // where the next watch starts; "": list first
	relistAt time.Time // when the list is due in any case
	listed   bool
	paged    bool // whole lists have failed: list in pages
	lost     int  // whole lists that failed in a row
	short    int  // watches in a row that ended within shortWatch without getting on,
	quiet    int  // that were silent,
	expired  int  // whose version was too old,
	garbage  int  // that ended in something that could not be understood
	failures int
	failedAt time.Time
	told     bool // of a failure; then its end is told, too
}

// NewReflector makes a reflector that fills store. notify, from Run's goroutine, hears every change but the first
// list's; those who need that list wait for Synced and read the store.
func NewReflector[T Object[T]](client *Client, kind Kind[T], store *Store[T], notify func(Delta[T]), log *Log) *Reflector[T] {
	return &Reflector[T]{client: client, kind: kind, store: store, notify: notify, log: log, synced: make(chan struct{})}
}

// Synced is closed once the store holds a complete list.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.synced }

// Run lists and watches until ctx ends. It returns early, with a *Status, only when the server says that the very first
// list is a bad request: then a selector is wrong, and no patience will mend it.
func (r *Reflector[T]) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		var wait time.Duration
		if r.version != "" && time.Now().Before(r.relistAt) {
			wait = r.afterWatch(ctx, r.watch(ctx))
		} else if err := r.list(ctx); err != nil {
			if !r.listed && isStatus(err, http.StatusBadRequest, "BadRequest") {
				return err
			}
			wait = r.afterFailure(ctx, "cannot list", err)
		}
		sleep(ctx, wait)
	}
	return nil
}

// afterFailure says what failed, and how long to wait.
func (r *Reflector[T]) afterFailure(ctx context.Context, what string, err error) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	if time.Since(r.failedAt) > healthy {
		r.failures = 0
	}
	r.failures++
	r.failedAt = time.Now()
	wait := max(backoff(r.failures, reflectorBackoff, reflectorLimit), retryAfter(err))
	r.told = r.log.Complain(what, err, "kind", r.kind.Name, "retry", wait.Round(time.Millisecond)) || r.told
	return wait
}

func (r *Reflector[T]) query() url.Values {
	q := url.Values{}
	if r.kind.Selector != "" {
		q.Set("labelSelector", r.kind.Selector)
	}
	if r.kind.Fields != "" {
		q.Set("fieldSelector", r.kind.Fields)
	}
	return q
}

func (r *Reflector[T]) accept(as string) string {
	if !r.kind.MetadataOnly {
		return ""
	}
	return metadataOnly(as)
}

// list makes the store equal to one complete list: the most recent state, which an unset resourceVersion asks for.
func (r *Reflector[T]) list(ctx context.Context) error {
	start := time.Now()
	listing, meta, err := r.pages(ctx, r.progress())
	if err != nil {
		// Too much for this server, or for the way to it? Pages are smaller.
		if code := statusIn(err).Code; listing.n > 0 || errors.Is(err, errSilent) || code == http.StatusInternalServerError || code == http.StatusGatewayTimeout {
			r.lost++
			r.paged = r.paged || r.lost >= 2
		}
		// The hourly list can wait; what the watch brings cannot.
		r.relistAt = time.Now().Add(relistEvery/12 + rand.N(relistEvery/12))
		return err
	}
	added, updated, removed := 0, 0, 0
	for _, d := range listing.Commit() {
		var none T
		switch {
		case d.Old == none:
			added++
		case d.New == none:
			removed++
		default:
			updated++
		}
		if r.listed {
			r.notify(d)
		}
	}
	r.log.Info("listed", "kind", r.kind.Name, "objects", r.store.Len(), "rv", meta.ResourceVersion, "added", added,
		"updated", updated, "removed", removed, "took", time.Since(start).Round(time.Millisecond))
	r.version, r.lost, r.short, r.quiet, r.garbage = meta.ResourceVersion, 0, 0, 0, 0
	r.relistAt = time.Now().Add(relistEvery + rand.N(relistEvery/5) - relistEvery/10)
	if !r.listed {
		r.listed = true
		close(r.synced)
	}
	return nil
}

// progress returns a function that, told how many objects of a list have come, says so when the list is slow.
func (r *Reflector[T]) progress() func(n int) {
	start, tell := time.Now(), time.Now().Add(slowList)
	return func(n int) {
		if n%256 == 0 && time.Now().After(tell) {
			r.log.Info("still listing", "kind", r.kind.Name, "objects", n, "for", time.Since(start).Round(time.Second))
			tell = time.Now().Add(time.Since(start)) // 2 s, 4 s, 8 s, …
		}
	}
}

// pages reads a list: whole, in one answer, which is half the work for both sides; or in pages. Where the token of a
// page has expired it starts again, once.
func (r *Reflector[T]) pages(ctx context.Context, progress func(n int)) (listing *Listing[T], meta ListMeta, err error) {
	for again := true; ; again = false {
		listing = r.store.List()
		q := r.query()
		if r.paged {
			q.Set("limit", strconv.Itoa(pageLimit))
		}
		for {
			if meta, err = r.page(ctx, q, func(obj T) { listing.Add(obj); progress(listing.n) }); err != nil || meta.Continue == "" {
				break
			}
			q.Set("continue", meta.Continue)
		}
		if !again || !q.Has("continue") || !isExpired(err) {
			return listing, meta, err
		}
	}
}

func (r *Reflector[T]) page(ctx context.Context, q url.Values, add func(T)) (ListMeta, error) {
	body, err := r.client.stream(ctx, request{method: http.MethodGet, path: r.kind.Path, query: q, accept: r.accept("PartialObjectMetadataList")})
	if err != nil {
		return ListMeta{}, err
	}
	defer body.Close()
	meta, err := decodeList(body, &r.kind, add)
	if err != nil {
		return meta, fmt.Errorf("%s: %w", callOf(http.MethodGet, r.kind.Path, q), err)
	}
	return meta, nil
}

// watchEnd is how a watch ended.
type watchEnd struct {
	err    error // nil: cleanly
	opened bool  // err is not about opening it
	events int   // frames that were understood, bookmarks too
	moved  bool  // the resume point is another
	lasted time.Duration
}

// watch applies events until the watch ends.
func (r *Reflector[T]) watch(ctx context.Context) (end watchEnd) {
	due, cancel := context.WithDeadlineCause(ctx, r.relistAt, errRelist)
	defer cancel()
	q := r.query()
	q.Set("watch", "1")
	q.Set("resourceVersion", r.version)
	q.Set("allowWatchBookmarks", "true")
	q.Set("timeoutSeconds", strconv.Itoa(300+rand.IntN(300))) // so that watches do not all end together
	body, err := r.client.stream(due, request{method: http.MethodGet, path: r.kind.Path, query: q, accept: r.accept("PartialObjectMetadata")})
	if err != nil {
		return watchEnd{err: err}
	}
	defer body.Close()
	start, from := time.Now(), r.version
	r.log.Debug("watching", "kind", r.kind.Name, "rv", from)
	if r.told {
		r.told = false
		r.log.Info("watching again", "kind", r.kind.Name, "rv", from)
	}
	end.opened = true
	end.err = decodeEvents(body, &r.kind, func(ev WatchEvent[T]) error {
		if ev.Status != nil {
			ev.Status.Code = cmp.Or(ev.Status.Code, http.StatusInternalServerError)
			return fmt.Errorf("%s: %w", callOf(http.MethodGet, r.kind.Path, q), ev.Status)
		}
		end.events++
		r.apply(ev)
		return nil
	})
	end.lasted, end.moved = time.Since(start), r.version != from
	return end
}

// apply takes one event and moves the resume point. A bookmark moves that only.
func (r *Reflector[T]) apply(ev WatchEvent[T]) {
	m := ev.Object.meta()
	stale := !newerVersion(m.ResourceVersion, r.version)
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		r.log.Debug(strings.TrimSpace(ev.Type+" "+r.kind.Name+" "+m.Key().String()), "rv", m.ResourceVersion, "stale", stale)
	}
	if stale {
		return // older than what we have: it would turn back time
	}
	r.version = m.ResourceVersion
	if ev.Type == "BOOKMARK" {
		return
	}
	for _, d := range r.store.Apply(ev.Type, ev.Object) {
		r.notify(d)
	}
}

// afterWatch decides how to go on after a watch: how long to wait, and, by clearing version, whether to list first.
func (r *Reflector[T]) afterWatch(ctx context.Context, end watchEnd) (wait time.Duration) {
	status := statusIn(end.err)
	var garbage garbageError
	isGarbage := errors.As(end.err, &garbage)
	silent := errors.Is(end.err, errSilent) || end.opened && end.events == 0 && end.lasted >= silence
	short := end.opened && !end.moved && end.lasted < shortWatch
	if end.events > 0 {
		r.quiet, r.expired = 0, 0
	}
	if end.moved {
		r.short = 0
		if !isGarbage {
			r.garbage = 0
		}
	}
	relist := false
	switch {
	case errors.Is(end.err, errRelist) || ctx.Err() != nil:
		return 0
	case isExpired(end.err):
		// No fault: the history begins anew with each restart of the server. A wait, but not that of the outage before.
		r.expired++
		relist = true
		wait = backoff(r.expired, reflectorBackoff, reflectorLimit)
	case status.Code != 0:
		// Opened, it is an ERROR frame. What the server says of this version alone may never end; a new one may help.
		hopeless := end.opened && status.Code != http.StatusTooManyRequests
		if hopeless {
			r.garbage++
		}
		refused := status.Code == http.StatusBadRequest || status.Code == http.StatusUnprocessableEntity
		relist = refused || hopeless && r.garbage >= 2
		wait = r.afterFailure(ctx, "cannot watch", end.err)
	case isGarbage:
		r.garbage++
		relist = r.garbage >= 2
		wait = r.afterFailure(ctx, "watch ended in garbage", end.err)
	case short:
		r.short++
		relist = r.short >= 3
		wait = r.afterFailure(ctx, "watch ended at once", cmp.Or(end.err, io.EOF))
	case silent:
		// Not even a bookmark. A version from the future, too, is answered with silence.
		r.quiet++
		relist = r.quiet >= 2
		r.log.Debug("watch was silent", "kind", r.kind.Name, "rv", r.version, "for", end.lasted.Round(time.Second))
	case !end.opened:
		wait = r.afterFailure(ctx, "cannot watch", end.err)
	default:
		r.log.Debug("watch ended, resuming", "kind", r.kind.Name, "rv", r.version, "err", end.err)
	}
	if relist {
		r.log.Info("listing anew", "kind", r.kind.Name, "after", cmp.Or(end.err, io.EOF))
		r.version = ""
	}
	return wait
}
