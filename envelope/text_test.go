package envelope_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/envelope"
)

func TestCutRunes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in    string
		limit int
		want  string
		cut   bool
	}{
		{"", 0, "", false},
		{"", -1, "", false},
		{"a", 0, "", true},
		{"a", -1, "", true},
		{"abc", 3, "abc", false},
		{"abcd", 3, "abc", true},
		{"日本語", 3, "日本語", false},
		{"日本語", 2, "日本", true},
		{"\xff\xfe\xfd", 3, "\ufffd\ufffd\ufffd", false},
		{"\xff\xfe\xfd", 2, "\ufffd\ufffd", true},
		{"ab\xe6\x97", 10, "ab\ufffd\ufffd", false},
		{"a\x00\n", 3, "a\x00\n", false},
		{"🙂🙂", 1, "🙂", true},
	} {
		got, cut := envelope.CutRunes(tc.in, tc.limit)
		if got != tc.want || cut != tc.cut {
			t.Errorf("CutRunes(%q, %d) = %q, %v, want %q, %v", tc.in, tc.limit, got, cut, tc.want, tc.cut)
		}
	}
}

// O19, S27 and K3: an error text of 1 MiB in multi-byte runes is cut on a rune
// boundary, is flagged, and fits in the headers of every broker.
func TestHugeErrorTextIsCutOnARuneBoundary(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"three bytes": strings.Repeat("界", 1<<20/3),
		"four bytes":  "x" + strings.Repeat("🙂", 1<<20/4),
		"mixed":       strings.Repeat("aé界🙂", 1<<20/10),
		"not UTF-8":   strings.Repeat("\xf0\x9f", 1<<19),
	} {
		got, truncated := envelope.ErrorText(text)
		if n := utf8.RuneCountInString(got); n != envelope.MaxErrorRunes || !truncated || !utf8.ValidString(got) {
			t.Errorf("%s: %d runes, truncated %v, valid %v", name, n, truncated, utf8.ValidString(got))
		}
		s := fullState()
		s.Message = text
		for _, budget := range []int{0, 131_072, 8192, 3000, 1500} {
			pairs, ok := s.Pairs(budget)
			if !ok || budget > 0 && sizeOf(pairs) > budget || sizeOf(pairs) > 5000 {
				t.Errorf("%s, budget %d: ok %v, %d bytes", name, budget, ok, sizeOf(pairs))
			}
			if s := envelope.Parse(headersOf(pairs), now); !s.Truncated {
				t.Errorf("%s, budget %d: not flagged", name, budget)
			}
		}
	}
	if got, truncated := envelope.ErrorText("short\x00"); got != "short\ufffd" || truncated {
		t.Errorf("short text: %q, truncated %v", got, truncated)
	}
}
