package memory_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

func TestURLOptions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		url     string
		problem string // empty if accepted
	}{
		{"memory://", ""},
		{"memory:", ""},
		{"memory:///", ""},
		{"memory://?partitions=4&maxMessageBytes=1000&maxMetadataBytes=100&headRoom=0&retain=true", ""},
		{"memory://?partitions=0", "option partitions: want a number of at least 1"},
		{"memory://?partitions=1025", "Partitions is 1025, want 1 to 1024"},
		{"memory://?partitions=-1", "option partitions"},
		{"memory://?partitions=four", "option partitions"},
		{"memory://?partitions=99999999999999999999", "option partitions"},
		{"memory://?partitions=", "option partitions"},
		{"memory://?partitions=1&partitions=2", "given 2 times"},
		{"memory://?maxMessageBytes=0", "option maxMessageBytes"},
		{"memory://?headRoom=-1", "option headRoom"},
		{"memory://?retain=maybe", "option retain: want true or false"},
		{"memory://?partition=4", `unknown option "partition"; there are [headRoom maxMessageBytes maxMetadataBytes partitions retain]`},
		{"memory://?partitions=0&retain=x", "option retain"}, // all problems at once
		{"memory://?a=%zz", "malformed"},
		{"memory://localhost", "something to connect to"},
		{"memory://user:hunter2@?partitions=1", "something to connect to"},
		{"memory:hunter2", "something to connect to"},
		{"memory:///orders", "something to connect to"},
		{"memory://#hunter2", "something to connect to"},
	} {
		t.Run(test.url, func(t *testing.T) {
			t.Parallel()
			u, err := url.Parse(test.url)
			if err != nil {
				t.Fatal(err)
			}
			process, err := memory.Opener().Open(t.Context(), adapters.OpenParams{URL: u})
			if test.problem == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := process.Close(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.problem) {
				t.Fatalf("open: %v, want an error with %q", err, test.problem)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestURLOptionsTakeEffect(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("memory://?maxMessageBytes=10&maxMetadataBytes=7&headRoom=0")
	if err != nil {
		t.Fatal(err)
	}
	process, err := memory.Opener().Open(t.Context(), adapters.OpenParams{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	if c := process.Capabilities(); c.MaxMessageBytes != 10 || c.MaxMetadataBytes != 7 {
		t.Errorf("limits %d and %d, want 10 and 7", c.MaxMessageBytes, c.MaxMetadataBytes)
	}
	h := adapters.Handoff{Consumer: consumer, Stream: adapters.StreamDeadLetter, Record: adapters.Record{Payload: make([]byte, 11)}}
	if err := process.Handoff(t.Context(), h); err == nil {
		t.Error("headRoom=0 leaves head-room")
	}
	if err := process.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSharedBrokerTakesNoOptions(t *testing.T) {
	t.Parallel()
	opener := memory.New(memory.Config{}).Opener()
	for _, raw := range []string{"memory://?partitions=4", "memory://host"} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := opener.Open(t.Context(), adapters.OpenParams{URL: u}); err == nil {
			t.Errorf("%s is accepted", raw)
		}
	}
	if !slices.Equal(opener.Schemes, []string{"memory"}) || !slices.Equal(memory.Opener().Schemes, []string{"memory"}) {
		t.Error("the scheme is not memory")
	}
}

// FuzzURL: whatever the options, they are refused with an error or give a
// broker that works.
func FuzzURL(f *testing.F) {
	for _, query := range []string{
		"", "partitions=4", "partitions=1024&headRoom=0", "retain=1", "maxMessageBytes=9223372036854775807&headRoom=9223372036854775807",
		"maxMetadataBytes=1", "a;b", "%", "partitions=4&partitions=4", "=", "&&",
	} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		process, err := memory.Opener().Open(t.Context(), adapters.OpenParams{URL: &url.URL{Scheme: "memory", RawQuery: query}})
		if err != nil {
			if process != nil {
				t.Error("both a broker and an error")
			}
			return
		}
		c := process.Capabilities()
		if c.MaxMessageBytes < 0 || c.MaxMetadataBytes < 0 {
			t.Errorf("limits %d and %d", c.MaxMessageBytes, c.MaxMetadataBytes)
		}
		ensure(t, process, consumer)
		// An empty record fits any limit, on every stream.
		if err := process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry}); err != nil {
			t.Error(err)
		}
		receiveID(t, subscribe(t, process, consumer), "", 1)
		if err := process.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
