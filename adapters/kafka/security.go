package kafka

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/IBM/sarama"
)

// TLS is how brokers are known, and how this client is known to them. The URL
// decides about TLS itself: kafkas:// has it. The zero TLS trusts the authorities
// of the system and shows no certificate.
type TLS struct {
	// CA is a PEM file with the certificates of the authorities to trust, instead of
	// those of the system.
	CA string
	// Cert and Key are PEM files with the certificate to show, with those in between
	// to its authority, and its private key. They are read for every connection, so
	// that they can be replaced while the program runs.
	Cert, Key string
	// ServerName is the name that the brokers' certificates must have. Empty means
	// the host name of each broker, as the cluster advertises it.
	ServerName string
}

// SASL is the user that this client is. A user or a password in the URL comes
// before the fields. The zero SASL means none but that.
type SASL struct {
	// Mechanism; empty means that of Config.Sarama, or else MechanismPlain.
	Mechanism Mechanism
	User      string
	// Password, or else the file that has it, with or without a line break behind
	// it. The file is read when the broker is opened.
	Password     Secret
	PasswordFile string
}

// Mechanism is how a user proves to be one.
type Mechanism string

const (
	// MechanismPlain sends the password: for connections with TLS.
	MechanismPlain Mechanism = sarama.SASLTypePlaintext
	// MechanismSCRAM256 and MechanismSCRAM512 show the knowledge of the password,
	// and want the broker to do the same.
	MechanismSCRAM256 Mechanism = sarama.SASLTypeSCRAMSHA256
	MechanismSCRAM512 Mechanism = sarama.SASLTypeSCRAMSHA512
)

// Secret is a text that is never printed; convert it to a string to get it.
type Secret string

// String returns a text of the same kind for all secrets.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "(secret)"
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText is String, for JSON and its like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (t TLS) validate() (errs []error) {
	if (t.Cert == "") != (t.Key == "") {
		field := "Cert"
		if t.Cert == "" {
			field = "Key"
		}
		errs = append(errs, fmt.Errorf("TLS.%s is set alone: Cert and Key belong together", field))
	}
	return errs
}

func (s SASL) validate() (errs []error) {
	if m := s.Mechanism; m != "" && m != MechanismPlain && scramHashes[m] == nil {
		errs = append(errs, fmt.Errorf("SASL.Mechanism is %q: must be %q, %q or %q", m, MechanismPlain, MechanismSCRAM256, MechanismSCRAM512))
	}
	return errs
}

// apply has sc use TLS as t says.
func (t TLS) apply(sc *sarama.Config, secure bool) error {
	if secure {
		sc.Net.TLS.Enable = true
	}
	if t == (TLS{}) {
		return nil
	}
	if !sc.Net.TLS.Enable {
		return errors.New("TLS is configured, and the URL begins with kafka://, which is without: write kafkas://")
	}
	conf := sc.Net.TLS.Config.Clone()
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	conf.ServerName = cmp.Or(t.ServerName, conf.ServerName)
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return fmt.Errorf("TLS.CA: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("TLS.CA: %s has no certificate in PEM form", t.CA)
		}
	}
	if t.Cert != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("TLS.Cert, TLS.Key: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(nil); err != nil {
			return err
		}
		conf.GetClientCertificate = load
	}
	sc.Net.TLS.Config = conf
	return nil
}

// apply has sc be the user of the URL or of s.
func (s SASL) apply(sc *sarama.Config, u *url.Userinfo) error {
	user, password := u.Username(), ""
	if u != nil {
		password, _ = u.Password()
	}
	if user = cmp.Or(user, s.User); user != "" {
		sc.Net.SASL.Enable, sc.Net.SASL.User = true, user
	}
	if password = cmp.Or(password, string(s.Password)); password == "" && s.PasswordFile != "" {
		data, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return fmt.Errorf("SASL.PasswordFile: %w", err)
		}
		if password = strings.TrimRight(string(data), "\r\n"); password == "" {
			return fmt.Errorf("SASL.PasswordFile: %s is empty", s.PasswordFile)
		}
	}
	sc.Net.SASL.Password = cmp.Or(password, sc.Net.SASL.Password)
	if s.Mechanism != "" {
		sc.Net.SASL.Mechanism = sarama.SASLMechanism(s.Mechanism)
	}
	if !sc.Net.SASL.Enable {
		if s != (SASL{}) {
			return errors.New("SASL is configured, and no user is named: set SASL.User, or write user:password@ into the URL")
		}
		return nil
	}
	if sc.Net.SASL.Mechanism == "" {
		sc.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	}
	if hash := scramHashes[Mechanism(sc.Net.SASL.Mechanism)]; hash != nil && sc.Net.SASL.SCRAMClientGeneratorFunc == nil {
		sc.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scram{hash: hash} }
	}
	if s != (SASL{}) && sc.Net.SASL.Password == "" {
		return fmt.Errorf("SASL: user %q has no password: set SASL.Password or SASL.PasswordFile, or write it into the URL", user)
	}
	return nil
}

// explain says what to do about an error of the first connection.
func explain(err error, sc *sarama.Config) error {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		plain   tls.RecordHeaderError
		remote  *net.OpError
	)
	hint := ""
	switch {
	case errors.As(err, &unknown):
		hint = "the authority of the broker's certificate is not known here: name its PEM file by TLS.CA (broker.kafka.tls.ca)"
	case errors.As(err, &name):
		hint = "the broker's certificate has another name than that by which it is reached: set TLS.ServerName (broker.kafka.tls.serverName), or have the cluster advertise the name"
	case errors.As(err, &invalid):
		hint = "the broker's certificate is not valid here and now"
	case errors.As(err, &remote) && remote.Op == "remote error": // what crypto/tls makes of an alert
		hint = "the broker refuses the TLS connection: does it want a certificate of a client (TLS.Cert, broker.kafka.tls.cert), or one of another authority?"
	case errors.As(err, &plain):
		hint = "the listener speaks no TLS: begin the URL with kafka://, or name the port of a listener with TLS"
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		hint = fmt.Sprintf("the broker does not accept user %q with this password by %s", sc.Net.SASL.User, sc.Net.SASL.Mechanism)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		hint = fmt.Sprintf("the listener does not offer %s: set SASL.Mechanism (broker.kafka.sasl.mechanism)", sc.Net.SASL.Mechanism)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		switch {
		case !sc.Net.TLS.Enable && !sc.Net.SASL.Enable:
			hint = "the broker ends the connection: does the listener want TLS (kafkas://), or a user?"
		case !sc.Net.TLS.Enable:
			hint = "the broker ends the connection: does the listener want TLS (kafkas://), are user and password right?"
		case sc.Net.SASL.Enable:
			hint = "the broker ends the connection: does the listener have TLS and users, are user, password and mechanism right?"
		default:
			hint = "the broker ends the connection: does the listener have TLS, or want a user?"
		}
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%s: %w", hint, err)
}
