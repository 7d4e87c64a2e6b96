package listen

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// pagesWith returns the Pages of a podcount that is well, with these metrics.
func pagesWith(metrics func() string) http.Handler {
	return Pages(Content{
		Stuck:      func() []string { return nil },
		Incomplete: func() []string { return nil },
		Metrics:    metrics,
	})
}

// get requests a page without a network.
func get(pages http.Handler, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
	return answer
}

func TestMetricsAreReadAtMostOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		pages := pagesWith(func() string {
			reads++
			testkit.Pass(100 * time.Millisecond)
			return fmt.Sprintf("reads %d\n", reads)
		})
		want := func(when, want string) {
			t.Helper()
			testkit.WantEqual(t, when, get(pages, "/metrics").Body.String(), want)
		}
		want("the first", "reads 1\n")
		want("100 ms after it began", "reads 1\n")
		testkit.Pass(900*time.Millisecond - 1)
		want("just before a second has passed", "reads 1\n")
		testkit.Pass(1)
		want("a second after it began", "reads 2\n")
		testkit.Pass(time.Minute)
		want("after a minute", "reads 3\n")
	})
}

func TestMetricsThatHangLeaveTimeAndPlacesForProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		finish := make(chan struct{})
		pages := pagesWith(func() string {
			reads++
			<-finish
			return "text\n"
		})
		answers := make(chan *httptest.ResponseRecorder, metricsPlaces)
		for range metricsPlaces {
			go func() { answers <- get(pages, "/metrics") }()
		}
		synctest.Wait()
		refused := get(pages, "/metrics")
		testkit.WantNumber(t, "the code of one too many", refused.Code, 503)
		testkit.WantEqual(t, "when to come again", refused.Header().Get("Retry-After"), "1")
		testkit.WantNumber(t, "the code of a probe", get(pages, "/livez").Code, 200)

		testkit.Pass(metricsTimeout)
		testkit.WantNumber(t, "answers after the limit", len(answers), metricsPlaces)
		testkit.WantNumber(t, "reads", reads, 1)
		answer := <-answers
		testkit.WantNumber(t, "the code after the limit", answer.Code, 503)
		testkit.WantText(t, answer.Body.String(), "a part of podcount does not answer")
		close(finish)
		synctest.Wait()
		testkit.WantEqual(t, "the metrics at last", get(pages, "/metrics").Body.String(), "text\n")
	})
}

func TestMetricsThatPanicAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		pages := pagesWith(func() string {
			reads++
			if reads == 1 {
				panic("a bug")
			}
			return "text\n"
		})
		func() {
			defer func() { testkit.WantText(t, fmt.Sprint(recover()), "a bug", "pages_test.go") }() // net/http logs it
			get(pages, "/metrics")
		}()
		testkit.Pass(metricsAge)
		testkit.WantEqual(t, "the metrics a second later", get(pages, "/metrics").Body.String(), "text\n")
	})
}

// flood is a crowd of clients that request the metrics.
type flood struct {
	address string
	over    chan struct{} // closed when all clients must leave
	clients sync.WaitGroup
}

// request requests the metrics again and again, and reads the answers. It sends what is wrong with an answer to
// problems. On a busy machine, a connection may be closed before it has sent its request.
func (f *flood) request(text string, problems chan<- string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		select {
		case <-f.over:
			return
		default:
		}
		resp, err := client.Get("http://" + f.address + "/metrics")
		if err != nil {
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		isWhole := resp.StatusCode == 200 && string(got) == text
		isRefused := resp.StatusCode == 503 && resp.Header.Get("Retry-After") != ""
		if err != nil || !isWhole && !isRefused {
			problems <- fmt.Sprintf("%s, %d bytes, %v", resp.Status, len(got), err)
			return
		}
	}
}

// readSlowly requests the metrics, and reads nothing but the first line of the answer until all must leave.
func (f *flood) readSlowly(isAnswered chan<- bool) {
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		isAnswered <- false
		return
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetReadBuffer(1 << 10)
	fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
	line, _ := bufio.NewReaderSize(conn, 16).ReadString('\n')
	isAnswered <- strings.Contains(line, "200 OK")
	<-f.over
}

func TestFloodOfRequestsKeepsNoProbeOut(t *testing.T) {
	const slow, quick, probes = 100, 200, 100
	text := strings.Repeat("a_metric_of_podcount 12345\n", 1<<14) // more than the kernel takes
	address := served(t, pagesWith(func() string { return text }).ServeHTTP)
	f := &flood{address: address, over: make(chan struct{})}
	isAnswered := make(chan bool, slow)
	for range slow {
		f.clients.Go(func() { f.readSlowly(isAnswered) })
	}
	answered := 0
	for range slow {
		if <-isAnswered {
			answered++
		}
	}
	testkit.WantNumber(t, "slow readers that got a place", answered, metricsPlaces)

	problems := make(chan string, quick)
	for range quick {
		f.clients.Go(func() { f.request(text, problems) })
	}
	longest := time.Duration(0)
	for range probes {
		begin := time.Now()
		answer := ask(address)
		for tries := 1; answer != "200 OK: ok\n" && tries < 3; tries++ { // as the kubelet does
			answer = ask(address)
		}
		testkit.WantEqual(t, "a probe", answer, "200 OK: ok\n")
		longest = max(longest, time.Since(begin))
	}
	t.Logf("the slowest of %d probes took %v", probes, longest)
	if longest > 5*time.Second {
		t.Errorf("a probe took %v", longest)
	}
	close(f.over)
	f.clients.Wait()
	close(problems)
	for problem := range problems {
		t.Errorf("an answer with the metrics: %s", problem)
	}
}
