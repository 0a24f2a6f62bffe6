package rabbitmq_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

// plugin answers as the management plugin does: the lists of a virtual host, to
// those who know the password.
type plugin struct {
	queues, bindings []map[string]any
	user, password   string
}

func (p *plugin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	if user != p.user || password != p.password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var list []map[string]any
	switch r.URL.EscapedPath() {
	case "/api/queues/%2F":
		list = p.queues
	case "/api/bindings/%2F":
		list = p.bindings
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	columns := strings.Split(r.URL.Query().Get("columns"), ",")
	out := []map[string]any{}
	for _, row := range list {
		only := map[string]any{}
		for _, c := range columns {
			if v, ok := row[c]; ok {
				only[c] = v
			}
		}
		out = append(out, only)
	}
	_ = json.NewEncoder(w).Encode(out)
}

func (p *plugin) queue(name string, messages, ready int, policy string, effective any) {
	p.queues = append(p.queues, map[string]any{
		"name": name, "messages": messages, "messages_ready": ready, "messages_unacknowledged": 0,
		"policy": policy, "operator_policy": nil, "effective_policy_definition": effective, "vhost": "/",
	})
}

func (p *plugin) binding(queue, key, exchange string) {
	p.bindings = append(p.bindings, map[string]any{
		"source": exchange, "destination": queue, "destination_type": "queue", "routing_key": key, "vhost": "/",
	})
}

// healthy is what the plugin says of a consumer's streams and the shared ones.
func (b *bench) healthy(c adapters.Consumer) *plugin {
	u, err := url.Parse(b.rawURL)
	if err != nil {
		b.Fatal(err)
	}
	password, _ := u.User.Password()
	p := &plugin{user: u.User.Username(), password: password}
	for _, s := range []adapters.Stream{adapters.StreamMain, adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		p.queue(queueOf(s, c), 0, 0, "", []any{})
	}
	lost := b.cfg.Prefix + ".undeliverable"
	p.queue(lost, 0, 0, "everything", map[string]any{"queue-leader-locator": "balanced"})
	p.binding(lost, "", lost)
	p.binding(queueOf(adapters.StreamMain, c), "", c.Topic)
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamSuspect} {
		p.binding(queueOf(s, c), queueOf(s, c), b.cfg.Prefix+".return")
	}
	return p
}

func (b *bench) managedBy(p http.Handler) adapters.Broker {
	server := httptest.NewServer(p)
	b.Cleanup(server.Close)
	return open(b.T, b.rawURL+"?management="+url.QueryEscape(server.URL), b.cfg)
}

func TestCheckAsksTheManagementPlugin(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	p := b.healthy(c)
	want(t, check(t, b.managedBy(p), c), nil)

	// The configuration can name it too; the URL comes first.
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	cfg := b.cfg
	cfg.Management = server.URL
	if _, err := open(t, b.rawURL, cfg).(adapters.Checker).Check(t.Context(), []adapters.Consumer{c}); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the plugin of the configuration was not asked: %v", err)
	}
	b.cfg = cfg
	want(t, check(t, b.managedBy(p), c), nil)

	main, retry, dead := queueOf(adapters.StreamMain, c), queueOf(adapters.StreamRetry, c), queueOf(adapters.StreamDeadLetter, c)
	rung := b.cfg.Prefix + ".delay.250ms"
	p = b.healthy(c)
	p.queue(rung, 6, 0, "", map[string]any{})
	p.queue(b.cfg.Prefix+".delay.500ms", 40, 7, "", map[string]any{})
	p.binding(b.cfg.Prefix+".delay.500ms", "", b.cfg.Prefix+".delay.500ms")
	for _, q := range p.queues {
		switch q["name"] {
		case main:
			q["policy"], q["effective_policy_definition"] = "backpressure", map[string]any{"max-length": 100000000, "overflow": "reject-publish"}
		case dead:
			q["policy"], q["effective_policy_definition"] = "tidy", map[string]any{"message-ttl": 86400000, "expires": 1}
		}
	}
	p.bindings = slices.DeleteFunc(p.bindings, func(b map[string]any) bool { return strings.HasSuffix(b["source"].(string), ".return") })
	want(t, check(t, b.managedBy(p), c), map[string]string{
		"info rabbitmq-held " + rung:                                           "6 messages have left the queue and not arrived yet",
		"warning rabbitmq-held " + b.cfg.Prefix + ".delay.500ms":               "33 messages",
		"error rabbitmq-binding-missing " + rung:                               "nothing arrives",
		"error rabbitmq-binding-missing " + retry:                              `exchange "` + b.cfg.Prefix + `.return" with key "` + retry + `"`,
		"error rabbitmq-binding-missing " + queueOf(adapters.StreamSuspect, c): "restart the application",
		"warning rabbitmq-policy " + main:                                      `policy "backpressure" sets max-length 100000000`,
		"error rabbitmq-policy " + dead:                                        `policy "tidy" sets expires 1, message-ttl 86400000`,
	})
}

// What was asked for and cannot be had is an error, and shows no password.
func TestCheckWithoutTheManagementPlugin(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 500 * time.Millisecond})
	c := b.consumer(1)
	b.Ensure(c)
	for name, tc := range map[string]struct {
		plugin http.HandlerFunc
		text   string
	}{
		"wrong user": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "needs the tag monitoring"},
		"no plugin":  {http.NotFound, "404"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "not what the plugin writes"},
	} {
		_, err := b.managedBy(tc.plugin).(adapters.Checker).Check(t.Context(), []adapters.Consumer{c})
		if err == nil || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for option, text := range map[string]string{
		"":                                 "must be an address",
		"localhost:15672":                  "must be an address",
		"ftp://localhost":                  "must be an address",
		"http://u:hunter2@localhost:15672": "must name no user",
	} {
		broker := open(t, b.rawURL+"?management="+url.QueryEscape(option), b.cfg)
		_, err := broker.(adapters.Checker).Check(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", option, err)
		}
	}
}

func TestConnectErrorsShowNoOptions(t *testing.T) {
	t.Parallel()
	_, err := tryOpen(t, "amqp://u:hunter2@127.0.0.1:1/?management=http://x:hunter3@127.0.0.1:1", rabbitmq.Config{})
	if err == nil || strings.Contains(err.Error(), "hunter") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}
