// One side of the comparison: a server to which requests are sent, and what it answered.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Side is one of the two servers.
type Side struct {
	url               string
	client, anonymous *http.Client
}

// Request is what both sides are sent. Method defaults to GET, ContentType to JSON when there is
// a body. Body is sent as it is when it is a string, else as JSON.
type Request struct {
	Method, Path, Query string
	ContentType, Accept string
	Header              map[string]string
	Body                any
	Anonymous           bool
	// Stream reads newline-separated watch events instead of one document.
	Stream bool
}

// Answer is what one side said.
type Answer struct {
	Request     Request
	Error       string
	Code        int
	ContentType string
	ETag        string
	Encoding    string
	Warnings    []string
	Body        any
	Text        string
}

// Transcript is all that one side said in one case.
type Transcript []Answer

// Session runs a case on one side and keeps the transcript.
type Session struct {
	side       *Side
	Namespace  string
	transcript Transcript
}

// Do sends a request that is compared.
func (s *Session) Do(request Request) Answer {
	answer := s.side.Send(request)
	s.transcript = append(s.transcript, answer)
	return answer
}

// Say records an answer that the case made out of one.
func (s *Session) Say(answer Answer) {
	s.transcript = append(s.transcript, answer)
}

// Until repeats a request until its answer is as wanted, and compares the last answer.
func (s *Session) Until(request Request, wanted func(Answer) bool) Answer {
	answer := s.side.until(request, wanted)
	s.Say(answer)
	return answer
}

// patience is how long a server may take for what it does in the background.
const patience = 20 * time.Second

func (s *Side) until(request Request, wanted func(Answer) bool) Answer {
	deadline := time.Now().Add(patience)
	for {
		answer := s.Send(request)
		if wanted(answer) || time.Now().After(deadline) {
			return answer
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settled reads an object once its server has written what it thinks of it.
func (s *Side) settled(path string) Answer {
	return s.until(Request{Path: path}, func(answer Answer) bool {
		conditions, _ := Get(answer.Body, "status", "conditions").([]any)
		if answer.Code != http.StatusOK || Text(answer.Body, "kind") != "CustomResourceDefinition" {
			return answer.Code != http.StatusOK || len(conditions) > 0
		}
		return condition(answer.Body, "Established") == "True" || condition(answer.Body, "NamesAccepted") == "False"
	})
}

// condition is the status of one condition of an object.
func condition(object any, kind string) string {
	conditions, _ := Get(object, "status", "conditions").([]any)
	for _, condition := range conditions {
		if Text(condition, "type") == kind {
			return Text(condition, "status")
		}
	}
	return ""
}

// Send sends a request without comparing its answer.
func (s *Side) Send(request Request) Answer {
	answer := Answer{Request: request}
	method := request.Method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	switch content := request.Body.(type) {
	case nil:
	case string:
		body = strings.NewReader(content)
	default:
		encoded, err := json.Marshal(content)
		if err != nil {
			answer.Error = err.Error()
			return answer
		}
		body = bytes.NewReader(encoded)
	}
	target := s.url + request.Path
	if request.Query != "" {
		target += "?" + request.Query
	}
	sent, err := http.NewRequest(method, target, body)
	if err != nil {
		answer.Error = err.Error()
		return answer
	}
	if request.Accept != "" {
		sent.Header.Set("Accept", request.Accept)
	} else {
		sent.Header.Set("Accept", "application/json")
	}
	if request.ContentType != "" {
		sent.Header.Set("Content-Type", request.ContentType)
	} else if body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	sent.Header.Set("User-Agent", "parity")
	for name, value := range request.Header {
		sent.Header.Set(name, value)
	}
	client := s.client
	if request.Anonymous {
		client = s.anonymous
	}
	response, err := client.Do(sent)
	if err != nil {
		answer.Error = "no answer"
		return answer
	}
	defer response.Body.Close()
	answer.Code = response.StatusCode
	answer.ContentType, _, _ = strings.Cut(response.Header.Get("Content-Type"), ";")
	answer.ETag = response.Header.Get("ETag")
	answer.Encoding = response.Header.Get("Content-Encoding")
	answer.Warnings = response.Header.Values("Warning")
	if request.Stream && answer.Code == http.StatusOK {
		answer.Body = readEvents(response.Body)
		return answer
	}
	var plain io.Reader = response.Body
	if answer.Encoding == "gzip" {
		if plain, err = gzip.NewReader(plain); err != nil {
			answer.Error = "broken compression"
			return answer
		}
	}
	content, err := io.ReadAll(io.LimitReader(plain, 32<<20))
	if err != nil {
		answer.Error = "broken answer"
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if decoder.Decode(&answer.Body) != nil {
		answer.Body = nil
		answer.Text = string(content)
	}
	return answer
}

func readEvents(body io.Reader) any {
	events := []any{}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.UseNumber()
		var event any
		if err := decoder.Decode(&event); err != nil {
			event = "not JSON: " + lines.Text()
		}
		// When a bookmark comes is a matter of time; only the one that ends the initial events is not.
		if Text(event, "type") == "BOOKMARK" && !bytes.Contains(lines.Bytes(), []byte("initial-events-end")) {
			continue
		}
		events = append(events, event)
	}
	return events
}

// Get walks into decoded JSON by object keys.
func Get(value any, path ...string) any {
	for _, name := range path {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = object[name]
	}
	return value
}

// Text is Get for a string; anything else is "".
func Text(value any, path ...string) string {
	text, _ := Get(value, path...).(string)
	return text
}

func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}
