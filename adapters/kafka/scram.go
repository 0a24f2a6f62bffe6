package kafka

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
)

// scram is the client's side of SCRAM (RFC 5802, RFC 7677), one for each
// connection. Like Kafka's, it takes user and password as they are, without
// SASLprep. It implements sarama.SCRAMClient.
type scram struct {
	hash                  func() hash.Hash
	user, password, authz string
	nonce                 string
	step                  int
	first                 string // without its header
	signature             []byte // that the server has to know
}

// scramHashes are the mechanisms that there are.
var scramHashes = map[Mechanism]func() hash.Hash{MechanismSCRAM256: sha256.New, MechanismSCRAM512: sha512.New}

const (
	// A server that asks for more iterations than maxIterations wants our time; one
	// that asks for fewer than minIterations wants to guess the password.
	minIterations, maxIterations = 4096, 1_000_000
	scramSteps                   = 3
)

var errSCRAM = errors.New("the broker's part of the SCRAM exchange is wrong")

func (s *scram) Begin(user, password, authz string) error {
	escape := strings.NewReplacer("=", "=3D", ",", "=2C")
	s.user, s.password, s.authz = escape.Replace(user), password, escape.Replace(authz)
	s.nonce, s.step = rand.Text(), 0
	return nil
}

// Step answers what the server sent.
func (s *scram) Step(challenge string) (string, error) {
	s.step++
	switch s.step {
	case 1:
		s.first = "n=" + s.user + ",r=" + s.nonce
		return s.header() + s.first, nil
	case 2:
		return s.prove(challenge)
	case scramSteps:
		return "", s.verify(challenge)
	}
	return "", fmt.Errorf("%w: it goes on after its end", errSCRAM)
}

func (s *scram) Done() bool { return s.step >= scramSteps }

func (s *scram) header() string {
	if s.authz == "" {
		return "n,,"
	}
	return "n,a=" + s.authz + ","
}

// prove answers nonce, salt and iterations with a proof that we know the
// password.
func (s *scram) prove(challenge string) (string, error) {
	fields := scramFields(challenge)
	if text, refused := fields['e']; refused {
		return "", fmt.Errorf("%w: %q", sarama.ErrSASLAuthenticationFailed, text)
	}
	salt, saltErr := base64.StdEncoding.DecodeString(fields['s'])
	iterations, countErr := strconv.Atoi(fields['i'])
	nonce := fields['r']
	switch {
	case !strings.HasPrefix(nonce, s.nonce) || len(nonce) == len(s.nonce):
		return "", fmt.Errorf("%w: it answers somebody else", errSCRAM)
	case saltErr != nil || len(salt) == 0:
		return "", fmt.Errorf("%w: there is no salt", errSCRAM)
	case countErr != nil || iterations < minIterations || iterations > maxIterations:
		return "", fmt.Errorf("%w: it asks for %q iterations, and only %d to %d are safe", errSCRAM, fields['i'], minIterations, maxIterations)
	}
	salted, err := pbkdf2.Key(s.hash, s.password, salt, iterations, s.hash().Size())
	if err != nil {
		return "", fmt.Errorf("%w: %w", errSCRAM, err)
	}
	final := "c=" + base64.StdEncoding.EncodeToString([]byte(s.header())) + ",r=" + nonce
	all := s.first + "," + challenge + "," + final
	key := s.mac(salted, "Client Key")
	stored := s.hash()
	stored.Write(key)
	for i, b := range s.mac(stored.Sum(nil), all) {
		key[i] ^= b
	}
	s.signature = s.mac(s.mac(salted, "Server Key"), all)
	return final + ",p=" + base64.StdEncoding.EncodeToString(key), nil
}

// verify believes that it is the server only if it knows the password too.
func (s *scram) verify(answer string) error {
	fields := scramFields(answer)
	if text, refused := fields['e']; refused {
		return fmt.Errorf("%w: %q", sarama.ErrSASLAuthenticationFailed, text)
	}
	got, err := base64.StdEncoding.DecodeString(fields['v'])
	if err != nil || len(s.signature) == 0 || !hmac.Equal(got, s.signature) {
		return fmt.Errorf("%w: the broker does not know the password of user %q", errSCRAM, s.user)
	}
	return nil
}

func (s *scram) mac(key []byte, text string) []byte {
	m := hmac.New(s.hash, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// scramFields takes a message of the form a=...,b=... apart.
func scramFields(message string) map[byte]string {
	fields := map[byte]string{}
	for field := range strings.SplitSeq(message, ",") {
		if len(field) >= 2 && field[1] == '=' {
			fields[field[0]] = field[2:]
		}
	}
	return fields
}
