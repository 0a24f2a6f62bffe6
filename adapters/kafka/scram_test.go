package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters/kafka"
)

// The example of RFC 7677, section 3.
const (
	scramNonce  = "rOprNGfwEbeRWgbNEkqO"
	scramServer = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	scramProof  = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	scramEnd    = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
)

func begin(t testing.TB) sarama.SCRAMClient {
	t.Helper()
	s, err := kafka.BeginSCRAM(kafka.MechanismSCRAM256, "user", "pencil", scramNonce)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := s.Step(""); err != nil || first != "n,,n=user,r="+scramNonce {
		t.Fatalf("the first message is %q, %v", first, err)
	}
	return s
}

func TestSCRAMIsThatOfTheRFC(t *testing.T) {
	t.Parallel()
	s := begin(t)
	if proof, err := s.Step(scramServer); err != nil || proof != scramProof || s.Done() {
		t.Fatalf("the proof is %q, %v, done: %t", proof, err, s.Done())
	}
	if rest, err := s.Step(scramEnd); err != nil || rest != "" || !s.Done() {
		t.Errorf("after the end: %q, %v, done: %t", rest, err, s.Done())
	}
}

// A broker that does not know the password is none of ours, and one that wants
// few iterations wants to guess it.
func TestSCRAMRefusesBrokersThatDoNotKnowThePassword(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ first, last, want string }{
		"another nonce":        {first: strings.ReplaceAll(scramServer, scramNonce, "other"), want: "answers somebody else"},
		"only our nonce":       {first: "r=" + scramNonce + ",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", want: "answers somebody else"},
		"few iterations":       {first: strings.ReplaceAll(scramServer, "i=4096", "i=1"), want: "only 4096 to 1000000 are safe"},
		"many iterations":      {first: strings.ReplaceAll(scramServer, "i=4096", "i=2000000000"), want: "only 4096 to 1000000 are safe"},
		"no salt":              {first: strings.ReplaceAll(scramServer, "W22ZaJ0SNY7soEsUEjb6gQ==", ""), want: "there is no salt"},
		"refused at once":      {first: "e=unknown-user", want: "unknown-user"},
		"refused at the end":   {first: scramServer, last: "e=invalid-proof", want: "invalid-proof"},
		"another signature":    {first: scramServer, last: "v=AAAA", want: "does not know the password"},
		"no signature":         {first: scramServer, last: "v=", want: "does not know the password"},
		"nothing":              {first: scramServer, last: "", want: "does not know the password"},
		"goes on after an end": {first: scramServer, last: scramEnd, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t)
			_, err := s.Step(tc.first)
			if err == nil {
				_, err = s.Step(tc.last)
			}
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, err = s.Step(tc.last); err == nil {
					t.Error("no error")
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "pencil") {
				t.Errorf("the error is %v, want it to say: %s", err, tc.want)
			}
			if refused := strings.HasPrefix(name, "refused"); errors.Is(err, sarama.ErrSASLAuthenticationFailed) != refused {
				t.Errorf("%v is taken for a wrong password: %t", err, !refused)
			}
		})
	}
}

// No broker can have itself believed, or panic a client, by what it sends.
func FuzzSCRAM(f *testing.F) {
	f.Add(scramServer, "v=AAAA")
	f.Add("r="+scramNonce+"x,s=AA==,i=4096", "")
	f.Add("e=x", "e=")
	f.Add("=,,r", "v")
	f.Fuzz(func(t *testing.T, first, last string) {
		s := begin(t)
		if _, err := s.Step(first); err != nil {
			return
		}
		if _, err := s.Step(last); err == nil && !(first == scramServer && last == scramEnd) {
			t.Errorf("%q and %q are believed", first, last)
		}
	})
}
