package signature_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/triage/signature"
)

func FuzzOf(f *testing.F) {
	for _, p := range pairs {
		f.Add(p.a)
		f.Add(p.b)
	}
	for _, s := range []string{"", " ", "\xff", `"`, `'`, "{", `{"`, `{"a":{"b":[1,{"c":"\`, "<", "<n", "<n>+", "://", "a://", "C:\\", "::", "[::1]:", "0x", "1e", "-", "Mon", "Jan 1", "~/", "user ", "=", "x=", "\x1b[", "２", "“", "1,", "1_", "a@b.c", strings.Repeat("1 ", 5000), strings.Repeat("\x00", 600)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := signature.Of(text)
		if again := signature.Of(text); again != s {
			t.Fatalf("%+v, and then %+v", s, again)
		}
		if explained, _ := signature.Explain(text); explained != s {
			t.Fatalf("%+v, explained %+v", s, explained)
		}
		if n := utf8.RuneCountInString(s.Text); n == 0 || n > 300 || !utf8.ValidString(s.Text) || strings.ContainsAny(s.Text, "\n\r\t\x00") {
			t.Fatalf("%d runes: %q", n, s.Text)
		}
	})
}

// O16: elsewhere, expressions on texts stopped the collection. The time for a
// hostile text has a bound, whatever its length.
func TestHostileTextsAreSignedInBoundedTime(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"a", "1", "1.", "1:", "::", "a.", "/", "/a", "'", `"`, `\"`, "{\"", "[{\"a\":", "<", "<q", "a@", "a=", "://", "0x", "-1", "e1", "Mon ", "user ", "“", "é", "\xff", "\x1b[", "\n", " at ", "goroutine 1 [", "password=", "a_1_", "..", "1,"} {
		text := strings.Repeat(unit, 1<<20/len(unit))
		start := time.Now()
		signature.Of(text)
		if d := time.Since(start); d > 100*time.Millisecond { // it takes microseconds
			t.Errorf("%q: %v", unit, d)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	texts := make([]string, 1024)
	for i := range texts {
		texts[i] = fmt.Sprintf(`payments: charge order %d for customer 8f14e45f-ceea-467f-a8c2-%012x: dial tcp 10.42.%d.19:5432: connect: refused`, i*7919, i, i%256)
	}
	b.SetBytes(int64(len(texts[0])))
	var s signature.Signer
	b.Run("Sign", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.Sign(texts[i%len(texts)])
		}
	})
	b.Run("Of", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			signature.Of(texts[i%len(texts)])
		}
	})
}
