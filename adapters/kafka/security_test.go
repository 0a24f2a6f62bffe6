package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// secured is a cluster behind TLS and passwords.
type secured struct {
	// silent clusters end the connection of who gives a wrong password.
	silent bool
	url    *url.URL // with user and password
	// Files of the authority, and of a client's certificate by it.
	ca, cert, key string
}

func (s secured) password() kafka.Secret {
	password, _ := s.url.User.Password()
	return kafka.Secret(password)
}

// address is the URL without what it hides.
func (s secured) address() *url.URL {
	u := *s.url
	u.User = nil
	return &u
}

// config is what reaches the cluster by a mechanism, with the address.
func (s secured) config(m kafka.Mechanism) kafka.Config {
	return kafka.Config{
		TLS:  kafka.TLS{CA: s.ca},
		SASL: kafka.SASL{Mechanism: m, User: s.url.User.Username(), Password: s.password()},
		// Tests of other listeners share the cluster.
		GroupPerTopic: true, Partitions: 1, SessionTimeout: 3 * time.Second, CommitInterval: commitInterval, ClientID: "spillway-test",
	}
}

func open(t *testing.T, u *url.URL, cfg kafka.Config) (adapters.Broker, error) {
	t.Helper()
	broker, err := kafka.OpenerWith(cfg).Open(testContext(t), adapters.OpenParams{URL: u, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err == nil {
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := broker.Close(ctx); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	return broker, err
}

// onSecured runs a test on a cluster in the process and on a real one.
func onSecured(t *testing.T, test func(*testing.T, secured)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		test(t, securedFake(t))
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		brokertest.URL(t, urlVariable) // waits for others' tests
		u, err := url.Parse(brokertest.URL(t, "SPILLWAY_TEST_KAFKA_TLS"))
		if err != nil {
			t.Fatal(err)
		}
		folder := strings.Join(brokertest.Command(t, "SPILLWAY_TEST_KAFKA_CERTS"), " ")
		test(t, secured{url: u, ca: filepath.Join(folder, "ca.pem"), cert: filepath.Join(folder, "client.pem"), key: filepath.Join(folder, "client.key")})
	})
}

func securedFake(t *testing.T) secured {
	folder := t.TempDir()
	ca := newAuthority(t, folder, "ca")
	cert, key := ca.issue(folder, "broker")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	const user, password = "spillway", "p-of-test:@/%"
	var opts []kfake.Opt
	for _, m := range []kafka.Mechanism{kafka.MechanismPlain, kafka.MechanismSCRAM256, kafka.MechanismSCRAM512} {
		opts = append(opts, kfake.Superuser(string(m), user, password))
	}
	c, err := kfake.NewCluster(append(opts,
		kfake.NumBrokers(1), kfake.EnableSASL(),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: ca.pool()}),
		kfake.GroupMinSessionTimeout(500*time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}),
	)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := secured{silent: true, url: &url.URL{Scheme: "kafkas", User: url.UserPassword(user, password), Host: c.ListenAddrs()[0]}, ca: ca.file}
	s.cert, s.key = ca.issue(folder, "client")
	return s
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, folder, name string) *authority {
	t.Helper()
	a := &authority{t: t, file: filepath.Join(folder, name+".pem")}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	data, err := os.ReadFile(a.file)
	if err != nil || !pool.AppendCertsFromPEM(data) {
		a.t.Fatalf("%s: %v", a.file, err)
	}
	return pool
}

// issue writes a certificate for 127.0.0.1 and its key.
func (a *authority) issue(folder, name string) (cert, key string) {
	a.t.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name + ".spillway.test"},
	}, a.cert, own.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(folder, name+".pem"), filepath.Join(folder, name+".key")
	a.write(cert, "CERTIFICATE", der)
	a.write(key, "PRIVATE KEY", private)
	return cert, key
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// Issue 4.6: a whole life of messages behind TLS and a password, which comes from
// a field, from a file, or from the URL.
func TestEverythingOverTLSWithAPassword(t *testing.T) {
	t.Parallel()
	onSecured(t, func(t *testing.T, s secured) {
		file := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(file, []byte(s.password()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			url *url.URL
			cfg func(*kafka.Config)
		}{
			"PLAIN, all in the URL": {s.url, func(c *kafka.Config) { c.SASL = kafka.SASL{} }},
			"SCRAM-SHA-256, password in a file": {s.address(), func(c *kafka.Config) {
				c.SASL.Mechanism, c.SASL.Password, c.SASL.PasswordFile = kafka.MechanismSCRAM256, "", file
			}},
			"SCRAM-SHA-512, with a client's certificate": {s.address(), func(c *kafka.Config) {
				c.SASL.Mechanism, c.TLS.Cert, c.TLS.Key = kafka.MechanismSCRAM512, s.cert, s.key
			}},
			"the name in the certificate": {s.url, func(c *kafka.Config) { c.SASL, c.TLS.ServerName = kafka.SASL{}, "broker.spillway.test" }},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cfg := s.config(kafka.MechanismPlain)
				tc.cfg(&cfg)
				broker, err := open(t, tc.url, cfg)
				if err != nil {
					t.Fatal(err)
				}
				liveThrough(t, broker)
			})
		}
	})
}

// liveThrough publishes, consumes, retries, dead-letters, drains and checks.
func liveThrough(t *testing.T, broker adapters.Broker) {
	ctx := testContext(t)
	c := adapters.Consumer{Topic: "tls-" + watermill.NewShortUUID(), Group: "billing", Concurrency: 2}
	if err := broker.Ensure(ctx, c); err != nil {
		t.Fatal(err)
	}
	sub, err := broker.Subscribe(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	msg := message.NewMessage("m-1", []byte("body"))
	msg.SetContext(ctx)
	if err := broker.Publisher().Publish(c.Topic, msg); err != nil {
		t.Fatal(err)
	}
	receive := func(stream adapters.Stream) *adapters.Delivery {
		t.Helper()
		select {
		case d := <-sub.Deliveries():
			if d.ID != "m-1" || string(d.Payload) != "body" || d.Stream != stream {
				t.Fatalf("delivered %q, %q, from %s, want m-1 from %s", d.ID, d.Payload, d.Stream, stream)
			}
			return d
		case <-ctx.Done():
			t.Fatalf("nothing came from %s", stream)
		}
		return nil
	}
	settle := func(d *adapters.Delivery, to adapters.Stream, due time.Time) {
		t.Helper()
		if err := broker.Handoff(ctx, adapters.Handoff{Consumer: c, Stream: to, Record: d.Record, Due: due}); err != nil {
			t.Fatal(err)
		}
		if err := d.Settler.Ack(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	settle(receive(adapters.StreamMain), adapters.StreamRetry, time.Now().Add(100*time.Millisecond))
	settle(receive(adapters.StreamRetry), adapters.StreamDeadLetter, time.Time{})
	if err := sub.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.(adapters.Checker).Check(ctx, []adapters.Consumer{c}); err != nil {
		t.Errorf("check: %v", err)
	}
	drained := 0
	if err := broker.Drain(ctx, of(adapters.StreamDeadLetter, c), func(context.Context, adapters.Record) error { drained++; return nil }); err != nil || drained != 1 {
		t.Errorf("drained %d dead letters, want 1: %v", drained, err)
	}
}

// What is refused says what to do, and not the password.
func TestRefusedConnectionsSayWhatToDo(t *testing.T) {
	t.Parallel()
	onSecured(t, func(t *testing.T, s secured) {
		stranger := newAuthority(t, t.TempDir(), "stranger")
		foreignCert, foreignKey := stranger.issue(t.TempDir(), "client")
		const wrong = "wr0ng-s3cret"
		withoutTLS := s.address()
		withoutTLS.Scheme = "kafka"
		misspelt := *s.url
		misspelt.User = url.UserPassword(s.url.User.Username(), wrong)
		for name, tc := range map[string]struct {
			url  *url.URL
			cfg  func(*kafka.Config)
			want string
		}{
			"wrong password, PLAIN":         {s.address(), func(c *kafka.Config) { c.SASL.Password = wrong }, `does not accept user "spillway" with this password by PLAIN`},
			"wrong password, SCRAM-SHA-256": {s.address(), func(c *kafka.Config) { c.SASL.Password, c.SASL.Mechanism = wrong, kafka.MechanismSCRAM256 }, `with this password by SCRAM-SHA-256`},
			"wrong password, SCRAM-SHA-512": {s.address(), func(c *kafka.Config) { c.SASL.Password, c.SASL.Mechanism = wrong, kafka.MechanismSCRAM512 }, `with this password by SCRAM-SHA-512`},
			"wrong password in the URL":     {&misspelt, func(c *kafka.Config) { c.SASL = kafka.SASL{} }, `with this password by PLAIN`},
			"unknown user":                  {s.address(), func(c *kafka.Config) { c.SASL.User = "nobody" }, `does not accept user "nobody"`},
			"unknown authority":             {s.address(), func(c *kafka.Config) { c.TLS.CA = "" }, "name its PEM file by TLS.CA (broker.kafka.tls.ca)"},
			"another authority":             {s.address(), func(c *kafka.Config) { c.TLS.CA = stranger.file }, "name its PEM file by TLS.CA (broker.kafka.tls.ca)"},
			"another name":                  {s.address(), func(c *kafka.Config) { c.TLS.ServerName = "kafka.example.com" }, "set TLS.ServerName"},
			"another authority's client": {s.address(), func(c *kafka.Config) {
				c.TLS.Cert, c.TLS.Key = foreignCert, foreignKey
			}, "does it want a certificate of a client"},
			"no TLS": {withoutTLS, func(c *kafka.Config) { c.TLS, c.SASL = kafka.TLS{}, kafka.SASL{} }, "does the listener want TLS (kafkas://)"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cfg := s.config(kafka.MechanismPlain)
				tc.cfg(&cfg)
				_, err := open(t, tc.url, cfg)
				if err == nil {
					t.Fatal("no error")
				}
				if refused := strings.Contains(tc.want, " password") || strings.Contains(tc.want, "does not accept"); refused && s.silent {
					tc.want = "are user, password and mechanism right"
				}
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("the error is %v, want it to say: %s", err, tc.want)
				}
				for _, secret := range []string{wrong, string(s.password())} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("the error has the password: %v", err)
					}
				}
			})
		}
	})
}

// A listener without TLS is told from one that is down.
func TestTLSWhereThereIsNone(t *testing.T) {
	t.Parallel()
	u, err := parseURL(brokertest.URL(t, urlVariable))
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme = "kafkas"
	_, err = open(t, u, kafka.Config{})
	if err == nil || !strings.Contains(err.Error(), "does the listener have TLS") {
		t.Errorf("the error is %v", err)
	}
}

// Wrong files and fields are named before anything is connected to.
func TestSecurityIsChecked(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	text := filepath.Join(folder, "text")
	empty := filepath.Join(folder, "empty")
	missing := filepath.Join(folder, "missing")
	if err := errors.Join(os.WriteFile(text, []byte("hello"), 0o600), os.WriteFile(empty, []byte("\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url  string
		cfg  kafka.Config
		want string
	}{
		{"kafkas://h", kafka.Config{TLS: kafka.TLS{CA: missing}}, "TLS.CA: open "},
		{"kafkas://h", kafka.Config{TLS: kafka.TLS{CA: text}}, "has no certificate in PEM form"},
		{"kafkas://h", kafka.Config{TLS: kafka.TLS{Cert: text}}, "TLS.Cert is set alone"},
		{"kafkas://h", kafka.Config{TLS: kafka.TLS{Key: text}}, "TLS.Key is set alone"},
		{"kafkas://h", kafka.Config{TLS: kafka.TLS{Cert: text, Key: text}}, "TLS.Cert, TLS.Key: "},
		{"kafka://h", kafka.Config{TLS: kafka.TLS{ServerName: "h"}}, "write kafkas://"},
		{"kafka://h", kafka.Config{SASL: kafka.SASL{Mechanism: "GSSAPI"}}, `SASL.Mechanism is "GSSAPI": must be "PLAIN", "SCRAM-SHA-256" or "SCRAM-SHA-512"`},
		{"kafka://h", kafka.Config{SASL: kafka.SASL{Password: "secret-4711"}}, "no user is named"},
		{"kafka://h", kafka.Config{SASL: kafka.SASL{User: "u"}}, `user "u" has no password`},
		{"kafka://h", kafka.Config{SASL: kafka.SASL{User: "u", PasswordFile: missing}}, "SASL.PasswordFile: open "},
		{"kafka://h", kafka.Config{SASL: kafka.SASL{User: "u", PasswordFile: empty}}, "is empty"},
		{"kafka://h", kafka.Config{SessionTimeout: time.Millisecond}, "SessionTimeout is 1ms"},
	} {
		u, err := parseURL(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = open(t, u, tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "secret-4711") {
			t.Errorf("%+v: the error is %v, want it to say: %s", tc.cfg, err, tc.want)
		}
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	const password = "secret-4711"
	cfg := kafka.Config{SASL: kafka.SASL{User: "u", Password: password}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if shown := fmt.Sprintf(verb, cfg.SASL); strings.Contains(shown, password) {
			t.Errorf("%s prints %s", verb, shown)
		}
	}
	if shown, err := json.Marshal(cfg.SASL); err != nil || strings.Contains(string(shown), password) {
		t.Errorf("JSON is %s, %v", shown, err)
	}
	var out logs
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "password", cfg.SASL.Password, "sasl", cfg.SASL)
	if out.contains(password) {
		t.Error("the password is in the log")
	}
}
