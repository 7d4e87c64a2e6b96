package fakekube

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// continueVersion is the format version of continue tokens.
const continueVersion = "meta.k8s.io/v1"

// continueToken says where the next page of a list begins. It is sent as JSON in base64. The fake keeps no other
// state between pages.
type continueToken struct {
	V string `json:"v"`

	// RV is the version of the list. If it is negative, the page shows the newest version, which need not be
	// consistent with the earlier pages.
	RV int64 `json:"rv"`

	// Start is the continue key of the first object on the page. The server may put a slash before it.
	Start string `json:"start"`
}

// encoded returns the token as clients see it.
func (t continueToken) encoded() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // cannot happen: strings and numbers can be encoded
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// continueKeyAfter returns the first key after that of an object.
func continueKeyAfter(place string) string { return "/" + place + "\x00" }

// startKey returns the continue key of the page's first object.
func (t continueToken) startKey() string { return strings.TrimPrefix(t.Start, "/") }

// parseContinue decodes a token. Errors have the server's wording.
func parseContinue(token string) (continueToken, error) {
	t := continueToken{}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return t, fmt.Errorf("continue key is not valid: %w", err)
	}
	if t.V != continueVersion {
		return t, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s", t.V)
	}
	if t.RV == 0 {
		return t, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version %s)", t.V)
	}
	if t.Start == "" {
		return t, fmt.Errorf("continue key is not valid: encoded start key empty (version %s)", t.V)
	}
	rooted := "/" + t.startKey()
	if path.Clean(rooted) != rooted {
		return t, fmt.Errorf("continue key is not valid: %s", t.Start)
	}
	return t, nil
}

// failExpiredToken answers 410 for a token of a compacted version. The answer includes a token that continues at the
// same place in the newest version.
func (r *request) failExpiredToken(t continueToken) {
	fresh := continueToken{V: continueVersion, RV: -1, Start: t.startKey()}
	r.answer(410, Object{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   Object{"continue": fresh.encoded()},
		"status":     "Failure",
		"message": "The provided continue parameter is too old to display a consistent list result. " +
			"You can start a new list without the continue parameter, or use the continue token in this response " +
			"to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent " +
			"list - objects that were created, modified, or deleted between the time the first chunk was returned " +
			"and now may show up in the list.",
		"reason": "Expired",
		"code":   410,
	})
}
