package fakekube

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// inProtobuf are objects with each way in which a value can stand in protobuf.
var inProtobuf = []string{
	`{"kind":"Pod","apiVersion":"v1",
	"metadata":{"name":"p","namespace":"n","uid":"u","generation":3,"creationTimestamp":"2026-01-02T03:04:05Z",
		"deletionGracePeriodSeconds":0,"labels":{"a":"b","c":""},"finalizers":["x/y","z/y"],
		"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r","uid":"v","controller":true}],
		"managedFields":[{"manager":"m","operation":"Update","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1",
			"fieldsV1":{"f:metadata":{"f:labels":{}}}}]},
	"spec":{"nodeName":"w","containers":[{"name":"c","image":"i","command":["sh","-c","exit 1"],
			"ports":[{"containerPort":80,"protocol":"TCP"}],
			"env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"s","key":"k","optional":false}}}],
			"resources":{"requests":{"cpu":"50m"}},
			"livenessProbe":{"httpGet":{"path":"/","port":"http"},"periodSeconds":5},
			"readinessProbe":{"tcpSocket":{"port":80}}}],
		"volumes":[{"name":"v","configMap":{"name":"m","defaultMode":420}},{"name":"e","emptyDir":{}}],
		"tolerations":[{"operator":"Exists","tolerationSeconds":300}],"priority":-5},
	"status":{"phase":"Running","containerStatuses":[{"name":"c","restartCount":2,"ready":true,
		"state":{"terminated":{"exitCode":137,"finishedAt":"2026-01-02T03:04:05Z"}}}]}}`,
	`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"password":"c2VzYW1l"},"type":"Opaque"}`,
	`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l"},
	"spec":{"holderIdentity":"","leaseDurationSeconds":0,"renewTime":"2026-01-02T03:04:05.678901Z"}}`,
	`{"kind":"Role","apiVersion":"rbac.authorization.k8s.io/v1","metadata":{"name":"r"},
	"rules":[{"apiGroups":["apps"],"resources":["pods"],"verbs":["get","list"]}]}`,
	`{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"propagationPolicy":"Background",
	"preconditions":{"uid":"u"},"dryRun":["All"]}`,
	`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,
	"details":{"name":"p","kind":"pods","causes":[{"reason":"r","message":"m","field":"f"}],"retryAfterSeconds":7}}`,
}

func TestObjectsAreTheSameAfterAWayThroughProtobuf(t *testing.T) {
	for _, text := range inProtobuf {
		want := parsed(text).(Object)
		t.Run(TextIn(want, "kind"), func(t *testing.T) {
			got, err := fromProtobuf(Protobuf([]byte(text)))
			if err != nil || !reflect.DeepEqual(got, want) {
				shown, _ := json.Marshal(got)
				wanted, _ := json.Marshal(want)
				t.Errorf("%v\n got %s\nwant %s", err, shown, wanted)
			}
		})
	}
}

// TestProtobufIsThatOfARealServer holds both ways against testdata/protobuf.json: answers of a kube-apiserver v1.35 to
// the same requests, in JSON and in protobuf.
func TestProtobufIsThatOfARealServer(t *testing.T) {
	text, err := os.ReadFile("testdata/protobuf.json")
	if err != nil {
		t.Fatal(err)
	}
	var answers []struct {
		Path     string
		JSON     json.RawMessage
		Protobuf []byte
	}
	if err := json.Unmarshal(text, &answers); err != nil {
		t.Fatal(err)
	}
	for _, answer := range answers {
		t.Run(answer.Path, func(t *testing.T) {
			if got := Protobuf(answer.JSON); !bytes.Equal(got, answer.Protobuf) {
				t.Errorf("written as\n%q\nreal\n%q", got, answer.Protobuf)
			}
			want := parsed(string(answer.JSON)).(Object)
			kind := TextIn(want, "kind")
			if want["items"] != nil || structs[kind] == nil {
				return // clients send no lists
			}
			got, err := fromProtobuf(answer.Protobuf)
			if err != nil {
				t.Fatal(err)
			}
			stored, _ := typed(kind, got)
			wanted, _ := typed(kind, want)
			if !reflect.DeepEqual(stored, wanted) {
				t.Errorf("read as\n%v\nreal\n%v", stored, wanted)
			}
		})
	}
}

func TestProtobufThatIsCutShortIsAnError(t *testing.T) {
	for _, text := range inProtobuf {
		whole := Protobuf([]byte(text))
		for n := range len(whole) - 4 { // the last fields of the envelope are empty
			got, err := fromProtobuf(whole[:n])
			if err == nil && reflect.DeepEqual(got, parsed(text)) {
				t.Fatalf("%d of %d bytes are read as the whole: %v", n, len(whole), got)
			}
		}
	}
}

func TestEachFieldThatTheTypesHaveHasANumberInProtobuf(t *testing.T) {
	for name, fields := range protoTypes {
		of, isKnown := structs[name]
		if !isKnown {
			continue
		}
		numbered := map[string]bool{"apiVersion": true, "kind": true}
		for _, f := range fields {
			numbered[f.name] = true
			if f.typ == "" {
				t.Errorf("%s.%s has no type", name, f.name)
			}
		}
		for field := range of {
			if !numbered[field] {
				t.Errorf("%s.%s has no number", name, field)
			}
		}
	}
}
