package trial_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/trial"
)

// greet is the controller: every two seconds, it answers the Greetings that have no answer, in their status.
func greet(ctx context.Context, c trial.Cluster) error {
	client := &http.Client{Transport: c.Transport, Timeout: 20 * time.Second}
	for ctx.Err() == nil {
		if err := greetAll(ctx, client, c.URL+"/apis/example.com/v1/namespaces/default/greetings"); err != nil {
			log.Println(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
	return nil
}

type greeting struct {
	Metadata     struct{ Name string }
	Spec, Status struct{ Text string }
}

func greetAll(ctx context.Context, client *http.Client, url string) error {
	var list struct{ Items []greeting }
	if err := send(ctx, client, "GET", url, "", &list); err != nil {
		return err
	}
	for _, g := range list.Items {
		answer := "Hello, " + g.Spec.Text
		if g.Status.Text == answer {
			continue
		}
		patch := fmt.Sprintf(`{"status":{"text":%q}}`, answer)
		if err := send(ctx, client, "PATCH", url+"/"+g.Metadata.Name+"/status", patch, &g); err != nil {
			return err
		}
	}
	return nil
}

func send(ctx context.Context, client *http.Client, method, url, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

const definition = `{"metadata":{"name":"greetings.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
	"names":{"plural":"greetings","kind":"Greeting"},"versions":[{"name":"v1","served":true,"storage":true,
	"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object",
	"x-kubernetes-preserve-unknown-fields":true}}}]}}`

func TestGreeterPassesTheTrial(t *testing.T) {
	trial.Run(t, trial.Program{Run: greet, Job: &trial.Job{
		Reads:  "greetings",
		Writes: "greetings/status",
		Setup: func(f *fakekube.Server) {
			f.PutJSON("customresourcedefinitions", definition)
			f.PutJSON("greetings", `{"metadata":{"namespace":"default","name":"first"},"spec":{"text":"world"}}`)
		},
		Change: func(f *fakekube.Server, n int) {
			f.Edit("greetings", fakekube.Key{Namespace: "default", Name: "first"}, func(o fakekube.Object) {
				o["spec"] = fakekube.Object{"text": fmt.Sprint("world ", n)}
			})
		},
		Right: func(f *fakekube.Server) error {
			for _, o := range f.All("greetings") {
				want := "Hello, " + fakekube.TextIn(o, "spec", "text")
				if got := fakekube.TextIn(o, "status", "text"); got != want {
					return fmt.Errorf("the answer is %q, want %q", got, want)
				}
			}
			return nil
		},
	}})
}
