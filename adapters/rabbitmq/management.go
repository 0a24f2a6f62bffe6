package rabbitmq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

// The rules of Check that need the management plugin.
const (
	ruleBindingMissing = "rabbitmq-binding-missing"
	ruleHeld           = "rabbitmq-held"
	rulePolicy         = "rabbitmq-policy"
)

// managementOption of the broker's URL is the address of the management
// plugin, such as http://host:15672. It is asked as the user of the broker's URL.
const managementOption = "management"

const (
	managementTimeout = 10 * time.Second
	managementMax     = 256 << 20 // bytes of an answer
)

// managed looks at what only the management plugin knows, if it was named.
func (in *inspection) managed(consumers []adapters.Consumer) error {
	if in.b.managementAddress() == "" && !in.b.url.Query().Has(managementOption) {
		return nil
	}
	m, err := newManagement(in.b)
	if err != nil {
		return err
	}
	defer m.client.CloseIdleConnections()
	var queues []managedQueue
	var bindings []managedBinding
	err = errors.Join(
		m.get(in.ctx, "queues", "name,messages,messages_ready,messages_unacknowledged,effective_policy_definition,policy,operator_policy", &queues),
		m.get(in.ctx, "bindings", "source,destination,destination_type,routing_key", &bindings),
	)
	if err != nil {
		return err
	}
	byName := map[string]managedQueue{}
	for _, q := range queues {
		byName[q.Name] = q
	}
	bound := map[binding]bool{}
	for _, b := range bindings {
		if b.Kind == "queue" {
			bound[binding{b.Queue, b.Key, b.Exchange}] = true
		}
	}

	t := in.b.topology
	look := func(c adapters.Consumer, p *plan, shared bool) {
		for _, planned := range p.queues {
			if q, ok := byName[planned.name]; ok && t.isShared(q.Name) == shared {
				in.held(c, q)
				in.policy(c, q, c.Topic != "" && t.streamOf(q.Name, c) == adapters.StreamMain)
			}
		}
		for _, b := range p.bindings {
			// Bindings of what is missing were reported with it.
			if _, ok := byName[b.queue]; ok && t.isShared(b.queue) == shared && !bound[b] {
				in.add(adapters.SeverityError, ruleBindingMissing, c, b.queue,
					fmt.Sprintf("it is not bound to exchange %q with key %q, so that nothing arrives from there", b.exchange, b.key),
					"restart the application: it binds the queue")
			}
		}
	}
	for _, c := range consumers {
		look(c, t.planOf(c), false)
	}
	look(adapters.Consumer{}, t.planOf(adapters.Consumer{}), true)
	for _, rung := range t.ladder {
		look(adapters.Consumer{}, t.planOfRung(rung), false)
	}
	return nil
}

// heldAtOnce is how many messages of a queue the broker dead-letters at a time.
const heldAtOnce = 32

// held reports messages that have left a queue and not arrived where they go.
func (in *inspection) held(c adapters.Consumer, q managedQueue) {
	n := q.Messages - q.Ready - q.Unacknowledged
	if n <= 0 {
		return
	}
	severity, message := adapters.SeverityInfo, counted(n, "message has", "messages have")+" left the queue and not arrived yet, as of some seconds ago"
	if n > heldAtOnce {
		severity = adapters.SeverityWarning
	}
	in.add(severity, ruleHeld, c, q.Name, message,
		"if a second check finds them too, the queue that they go to does not take them: look for a length limit on it, and for its leader")
}

// policy reports what a policy makes of a queue, beside its arguments.
func (in *inspection) policy(c adapters.Consumer, q managedQueue, main bool) {
	var set []string
	for _, key := range slices.Sorted(maps.Keys(q.Effective)) {
		switch key {
		case "message-ttl", "expires", "max-length", "max-length-bytes":
			set = append(set, fmt.Sprintf("%s %s", key, q.Effective[key]))
		}
	}
	if len(set) == 0 {
		return
	}
	severity := adapters.SeverityError
	if _, deletes := q.Effective["expires"]; main && !deletes {
		severity = adapters.SeverityWarning // the owner of a topic may limit it
	}
	in.add(severity, rulePolicy, c, q.Name,
		fmt.Sprintf("policy %q sets %s: messages leave early, are refused, or are lost with the queue", cmp.Or(q.Policy, q.OperatorPolicy), strings.Join(set, ", ")),
		"make the policy's pattern leave this queue out")
}

type managedQueue struct {
	Name           string    `json:"name"`
	Messages       int       `json:"messages"`
	Ready          int       `json:"messages_ready"`
	Unacknowledged int       `json:"messages_unacknowledged"`
	Policy         string    `json:"policy"`
	OperatorPolicy string    `json:"operator_policy"`
	Effective      policyMap `json:"effective_policy_definition"`
}

type managedBinding struct {
	Exchange string `json:"source"`
	Queue    string `json:"destination"`
	Kind     string `json:"destination_type"`
	Key      string `json:"routing_key"`
}

// policyMap reads an object, and an empty list, which Erlang does not tell from
// an empty object.
type policyMap map[string]json.RawMessage

func (p *policyMap) UnmarshalJSON(data []byte) error {
	if string(data) == "[]" || string(data) == `""` {
		return nil
	}
	return json.Unmarshal(data, (*map[string]json.RawMessage)(p))
}

// management asks the management plugin.
type management struct {
	base  *url.URL
	vhost string
	user  *url.Userinfo

	client *http.Client
}

// managementAddress is what the URL says, or else the configuration.
func (b *broker) managementAddress() string {
	if q := b.url.Query(); q.Has(managementOption) {
		return q.Get(managementOption)
	}
	return b.cfg.Management
}

// managementURL reads an address. What is wrong with it is not shown: it may be
// a password.
func managementURL(address string) (*url.URL, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" {
		return nil, errors.New("must be an address such as http://localhost:15672")
	}
	if base.User != nil {
		return nil, errors.New("must name no user: that of the broker's URL is used")
	}
	return base, nil
}

func newManagement(b *broker) (*management, error) {
	base, err := managementURL(b.managementAddress())
	if err != nil {
		return nil, fmt.Errorf("the URL's option %s %w", managementOption, err)
	}
	at, err := amqp.ParseURI(b.url.String())
	if err != nil {
		return nil, errors.New("the URL cannot be parsed")
	}
	return &management{
		base: base, vhost: at.Vhost, user: url.UserPassword(at.Username, at.Password),
		client: &http.Client{Timeout: managementTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: b.cfg.TLS.Clone()}},
	}, nil
}

// get reads a list of the virtual host.
func (m *management) get(ctx context.Context, list, columns string, into any) error {
	at := m.base.JoinPath("api", list, url.PathEscape(m.vhost))
	at.RawQuery = url.Values{"columns": {columns}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return fmt.Errorf("management: %w", err)
	}
	password, _ := m.user.Password()
	req.SetBasicAuth(m.user.Username(), password)
	resp, err := m.client.Do(req)
	if err != nil {
		return fmt.Errorf("management: %w", err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("management: list %s: %s: the user needs the tag monitoring, and access to the virtual host", list, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("management: list %s: %s", list, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, managementMax)).Decode(into); err != nil {
		return fmt.Errorf("management: list %s: the answer is not what the plugin writes: %w", list, err)
	}
	return nil
}
