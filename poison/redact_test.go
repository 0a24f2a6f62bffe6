package poison_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/poison"
)

func redactor(t testing.TB, cfg poison.Redaction) *poison.Redactor {
	t.Helper()
	r, err := poison.NewRedactor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Made-up credentials that recur in the tables. They are put together here, so
// that tools which look for leaked keys do not stumble over this file.
const (
	jwt       = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	awsID     = "AKIA" + "Z7QX3M2LK5RT4WPA"
	awsSecret = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYz0EXAMPLEabc"
	ghToken   = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	pemBegin  = "-----BEGIN RSA " + "PRIVATE KEY-----"
	pemEnd    = "-----END RSA " + "PRIVATE KEY-----"
)

// secrets are texts with the secret that must not survive, and what is left.
var secrets = []struct{ name, secret, in, want string }{
	// URLs
	{"postgres", "hunter2", "connect postgres://app:hunter2@db:5432/shop?sslmode=disable: timeout", "connect postgres://app:<q>@db:5432/shop?sslmode=disable: timeout"},
	{"amqp", "s3cr3t", `dial "amqp://guest:s3cr3t@rabbit:5672/": connection refused`, `dial "amqp://guest:<q>@rabbit:5672/": connection refused`},
	{"no user", "pa55", "redis://:pa55@cache:6379/0", "redis://:<q>@cache:6379/0"},
	{"http user", "anna:pw", "Get https://anna:pw@api.example.com/v1/x: EOF", "Get https://<q>@api.example.com/v1/x: EOF"},
	{"http token as user", "abcdef0123", "https://abcdef0123@errors.example.com/42", "https://<q>@errors.example.com/42"},
	{"http key with empty password", "sk_x1", "https://sk_x1:@api.example.com", "https://<q>@api.example.com"},
	{"at in password", "p@ss:w", "mongodb://app:p@ss:w@m1:27017,m2:27017/db", "mongodb://app:<q>@m1:27017,m2:27017/db"},
	{"escaped password", "p%40ss", "amqps://app:p%40ss@mq.example.com/vh", "amqps://app:<q>@mq.example.com/vh"},
	{"several", "one1", "kafka://u:one1@a:9092 and kafka://u:one1@b:9092", "kafka://u:<q>@a:9092 and kafka://u:<q>@b:9092"},
	{"hash in password", "pa#ss", `parse "postgres://app:pa#ss@db/shop": invalid port ":pa" after host`, `parse "postgres://app:<q>@db/shop": invalid port ":<q>" after host`},
	{"slash in password", "pa/ss", `parse "postgres://app:pa/ss@db/shop": invalid port ":pa" after host`, `parse "postgres://app:<q>@db/shop": invalid port ":<q>" after host`},
	{"blank in password", "pa ss", `parse "postgres://app:pa ss@db/shop": net/url: invalid userinfo`, `parse "postgres://app:<q>@db/shop": net/url: invalid userinfo`},
	{"quote in password", `pa\"ss`, `parse "postgres://app:pa\"ss@db/shop": net/url: invalid userinfo`, `parse "postgres://app:<q>@db/shop": net/url: invalid userinfo`},
	{"cut in password", "hunt", "dial postgres://app:hunt", "dial postgres://app:<q>"},
	{"escaped quotes", "hunter2", `{\"error\":\"dial amqp://u:hunter2@h:5672\"}`, `{\"error\":\"dial amqp://u:<q>@h:5672\"}`},
	// DSNs
	{"mysql", "s3:cr@et", "app:s3:cr@et@tcp(db:3306)/shop?parseTime=true", "app:<q>@tcp(db:3306)/shop?parseTime=true"},
	{"mysql socket", "geheim", "dsn=app:geheim@unix(/run/mysqld.sock)/shop", "dsn=app:<q>@unix(/run/mysqld.sock)/shop"},
	{"mysql default", "geheim", "app:geheim@/shop", "app:<q>@/shop"},
	{"bare host", "guest1", "login guest:guest1@localhost failed", "login guest:<q>@localhost failed"},
	{"host and port", "guest1", "login guest:guest1@mq:5672 failed", "login guest:<q>@mq:5672 failed"},
	{"libpq", "hunter2", "cannot parse `host=db user=app password=hunter2 dbname=shop`", "cannot parse `host=db user=app password=<q> dbname=shop`"},
	{"libpq quoted", "it''s so", "host=db password='it''s so' user=app", "host=db password='<q>' user=app"},
	{"libpq odd signs", "a;b,c&d", "password=a;b,c&d user=app", "password=<q> user=app"},
	{"ADO", "hunter2!", "Server=db;User Id=app;Password=hunter2!;Initial Catalog=x;", "Server=db;User Id=app;Password=<q>;Initial Catalog=x;"},
	{"ADO last", "hunter2!", `open "Server=db;Pwd=hunter2!": refused`, `open "Server=db;Pwd=<q>": refused`},
	{"ODBC braces", "a;b", "Driver={pg};Pwd={a;b};Uid=app", "Driver={pg};Pwd={<q>};Uid=app"},
	{"service bus", "q1w2E3r4/AbC=", "Endpoint=sb://x.example.net/;SharedAccessKeyName=root;SharedAccessKey=q1w2E3r4/AbC=", "Endpoint=sb://x.example.net/;SharedAccessKeyName=root;SharedAccessKey=<q>"},
	{"jdbc", "hunter2", "jdbc:postgresql://db/shop?user=app&password=hunter2&ssl=true", "jdbc:postgresql://db/shop?user=app&password=<q>&ssl=true"},
	// query strings
	{"query key", "A1b2C3", `Get "https://maps.example.com/geo?q=Rio&key=A1b2C3": context deadline exceeded`, `Get "https://maps.example.com/geo?q=Rio&key=<q>": context deadline exceeded`},
	{"query token", "A1b2C3", "GET /hook?token=A1b2C3&id=7 403", "GET /hook?token=<q>&id=7 403"},
	{"query access token", "A1b2C3", "https://h/x?access_token=A1b2C3#top", "https://h/x?access_token=<q>"},
	{"query sig", "a%2Fb%3D", "https://blob.example.net/c/o?sv=2024&sig=a%2Fb%3D&se=1", "https://blob.example.net/c/o?sv=2024&sig=<q>&se=1"},
	{"query amz", "0f1e2d", "https://b.example.com/o?X-Amz-Expires=60&X-Amz-Signature=0f1e2d", "https://b.example.com/o?X-Amz-Expires=60&X-Amz-Signature=<q>"},
	{"query escaped ampersand", "A1b2", `"https:\/\/h\/x?a=1\u0026secret=A1b2\u0026b=2"`, `"https:\/\/h\/x?a=1\u0026secret=<q>\u0026b=2"`},
	// named values
	{"json", "hunter2", `bad config {"user":"app","password":"hunter2","port":5}`, `bad config {"user":"app","password":"<q>","port":5}`},
	{"json words", "correct horse", `{"password": "correct horse"}`, `{"password": "<q>"}`},
	{"json in json", `a\\\"b`, `{"m":"{\"client_secret\":\"a\\\"b\"}"}`, `{"m":"{\"client_secret\":\"<q>\"}"}`},
	{"json number", "123456", `{"token":123456}`, `{"token":<q>}`},
	{"printed struct", "hunter2", "config {User:app Password:hunter2 Host:db}", "config {User:app Password:<q> Host:db}"},
	{"printed struct last", "hunter2", "config &{User:app Password:hunter2}", "config &{User:app Password:<q>}"},
	{"go syntax", "hunter2", `Config{User:"app", Password:"hunter2"}`, `Config{User:"app", Password:"<q>"}`},
	{"yaml", "hunter2", "line 3: password: hunter2", "line 3: password: <q>"},
	{"toml", "correcthorse", `api_key = "correcthorse"`, `api_key = "<q>"`},
	{"env", "hunter2", "PGPASSWORD=hunter2 psql: exit status 2", "PGPASSWORD=<q> psql: exit status 2"},
	{"ruby", "hunter2", `{:user=>"app", "password"=>"hunter2"}`, `{:user=>"app", "password"=>"<q>"}`},
	{"php", "hunter2", "post[password]=hunter2 rejected", "post[password]=<q> rejected"},
	{"spoken name", "A1B2C3D4", "rejected api key: A1B2C3D4", "rejected api key: <q>"},
	{"portuguese", "abre-te1", "login: senha=abre-te1", "login: senha=<q>"},
	{"aws secret", awsSecret, "aws_secret_access_key=" + awsSecret, "aws_secret_access_key=<q>"},
	{"aws secret spoken", awsSecret, "Secret Access Key: " + awsSecret, "Secret Access Key: <q>"},
	{"flag", "hunter2", "exec: mysqldump --password hunter2 --all: exit status 2", "exec: mysqldump --password <q> --all: exit status 2"},
	{"flag with equals", "hunter2", "exec: x --db-password=hunter2", "exec: x --db-password=<q>"},
	{"xml", "hunter2", "<user>app</user><password>hunter2</password>", "<user>app</user><password><q></password>"},
	{"xml namespace", "abc 1", "<wsse:Password>abc 1</wsse:Password>", "<wsse:Password><q></wsse:Password>"},
	{"sentence", "hunter2", `rejected: wrong password "hunter2" for app`, `rejected: wrong password "<q>" for app`},
	{"sentence in json", "hunter2", `{"m":"password \"hunter2\" rejected"}`, `{"m":"password \"<q>\" rejected"}`},
	{"card check value", "123", "declined: cvv=123", "declined: cvv=<q>"},
	{"half redacted", "rest9", "password=<q>rest9", "password=<q>"},
	// headers
	{"bearer header", "abc123def", "Authorization: Bearer abc123def", "Authorization: Bearer <id>"},
	{"bearer jwt", jwt, "request with Authorization: Bearer " + jwt + " refused", "request with Authorization: Bearer <id> refused"},
	{"basic header", "YXBwOmh1bnRlcjI=", "authorization: Basic YXBwOmh1bnRlcjI=", "authorization: Basic <id>"},
	{"printed header", "abc123def", "map[Accept:[*/*] Authorization:[Bearer abc123def] Cookie:[sid=9f8e]]", "map[Accept:[*/*] Authorization:[Bearer <id>] Cookie:[<q>]]"},
	{"json header", "abc123def", `{"Authorization":"Bearer abc123def","n":1}`, `{"Authorization":"Bearer <id>","n":1}`},
	{"digest", "6629fae4", `Authorization: Digest username="app", response="6629fae4"`, "Authorization: Digest <q>"},
	{"unknown scheme", "zzz9", "Proxy-Authorization: zzz9yyy", "Proxy-Authorization: <q>"},
	{"cookie", "9f8e", "Cookie: sid=9f8e; lang=pt\r\nHost: x", "Cookie: <q>\r\nHost: x"},
	{"api key header", "0a1b2c", "X-Api-Key: 0a1b2c", "X-Api-Key: <q>"},
	{"free bearer", "mF_9.B5f-4.1JqM", "sent bearer mF_9.B5f-4.1JqM to api", "sent bearer <id> to api"},
	{"free basic", "YXBwOmh1bnRlcjI=", "sent Basic YXBwOmh1bnRlcjI=.", "sent Basic <id>."},
	// tokens
	{"jwt", jwt, "verify " + jwt + ": signature is invalid", "verify <id>: signature is invalid"},
	{"jwt cut", "eyJhbGciOiJIUzI1NiIsInR5", "verify eyJhbGciOiJIUzI1NiIsInR5", "verify <id>"},
	{"aws id", awsID, "user " + awsID + " is not authorized", "user <id> is not authorized"},
	{"aws id in query", awsID, "?X-Amz-Credential=" + awsID + "%2F20261130", "?X-Amz-Credential=<id>%2F20261130"},
	{"github", ghToken, "push with " + ghToken + " rejected", "push with <id> rejected"},
	{"slack", "xoxb-" + "123456789012-abcDEF", "slack: xoxb-" + "123456789012-abcDEF: invalid_auth", "slack: <id>: invalid_auth"},
	{"private key", "MIIEow", "load: " + pemBegin + "\nMIIEow\nIBAA\n" + pemEnd + "\nfailed", "load: <q>\nfailed"},
	{"private key escaped", "MIIEow", `"k": "` + pemBegin + `\nMIIEow\n` + pemEnd + `\n"`, `"k": "<q>\n"`},
	{"private key cut", "MIIEow", pemBegin + "\nMIIEow\nIBAA", "<q>"},
	// personal data
	{"email", "anna.kowalska@example.com", "no account for anna.kowalska@example.com.", "no account for <email>."},
	{"email tag", "a+b@mail.example.co.uk", "<a+b@mail.example.co.uk>: 550 no such user", "<<email>>: 550 no such user"},
	{"email escaped", "anna%40example.com", "GET /u?mail=anna%40example.com&x=1", "GET /u?mail=<email>&x=1"},
	{"email international", "josé@exämple.com", "user josé@exämple.com", "user <email>"},
	{"email digits in domain", "li@163.com", "mail li@163.com bounced", "mail <email> bounced"},
	{"card", "4111111111111111", "card 4111111111111111 declined", "card <id> declined"},
	{"card blanks", "5555 5555 5555 4444", "card 5555 5555 5555 4444 declined", "card <id> declined"},
	{"card dashes", "4111-1111-1111-1111", "(4111-1111-1111-1111)", "(<id>)"},
	{"card after number", "4111 1111 1111 1111", "order 1234 4111 1111 1111 1111", "order 1234 <id>"},
	{"card amex", "3782 822463 10005", "3782 822463 10005", "<id>"},
	{"card 19", "6304000000000000000", "pan=6304000000000000000;", "pan=<id>;"},
	{"card in json", "4111111111111111", `{"pan":"4111111111111111"}`, `{"pan":"<id>"}`},
	{"cards joined", "4111111111111111", "4111111111111111-4111111111111111", "<id>-<id>"},
}

func TestTextTakesSecretsOut(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{})
	if len(secrets) < 40 {
		t.Fatalf("only %d rows", len(secrets))
	}
	for _, tt := range secrets {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(tt.in, tt.secret) {
				t.Fatalf("%q is not in %q", tt.secret, tt.in)
			}
			got := r.Text(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Text (-want +got):\n%s", diff)
			}
			if again := r.Text(got); again != got {
				t.Errorf("the second time: %q, after %q", again, got)
			}
		})
	}
}

// innocents are texts that stay as they are.
var innocents = []string{
	"",
	"order 48213 not found",
	"unexpected EOF",
	"token expired at 2026-11-30T20:07:57Z",
	"passwords do not match",
	"password must have at least 12 characters",
	"password: must not be empty",
	"pq: password authentication failed for user \"app\" (SQLSTATE 28P01)",
	"secret: not found",
	"secrets \"db-credentials\" not found",
	"invalid token",
	"unexpected token: }",
	`unexpected token: "}" at line 4`,
	"get token: oauth2: cannot fetch token: 401 Unauthorized",
	"token: 404",
	"missing password=",
	"has_password=true token=<nil> secret=null",
	"password=***",
	"max_tokens=4096 tokens=1500 token_type=Bearer token_count=3",
	"key=order-123 value=7 partition_key=eu sort_key=a primary key=5",
	"routing_key=orders.created exchange=shop",
	"pass=12 fail=1",
	"PWD=/srv/app",
	"if password == confirm && token != old",
	"std::token::Kind",
	"scanner/token:12: bad",
	"unknown flag: --token",
	"--password is required",
	"bearer token missing",
	"bearer authentication is not supported",
	"bearer of bad news",
	"Basic validation failed",
	"basic HTTPv2 check",
	"WWW-Authenticate header missing",
	"cookie: named cookie not present",
	"550e8400-e29b-41d4-a716-446655440000",
	"12345678-1234-1234-1234-123456789012",
	"at 1722470400123 ms, 1722470400123456 us, 1722470400123456789 ns",
	"2026-11-30T20:07:57.123456789+02:00",
	"order 4111111111111112 failed",           // fails Luhn
	"order 4111 1111 1111 1112 failed",        // fails Luhn
	"offset 4111111111111111111111 too large", // too long
	"ratio 0.4111111111111111",
	"block blk_-4980916519894289629 terminating, hash -4111111111111111",
	`error parsing "token": invalid character '}'`,
	`"secret": expected string, got number`,
	`Key: 'User.Password' Error:Field validation for 'Password' failed on the 'required' tag`,
	"usage: login <token> <password>",
	`field password: "" is too short`,
	"sha 4111111111111111abcdef",
	"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	"dial tcp 10.42.7.19:5432: connect: connection refused",
	"read tcp [::1]:51234->[::1]:9092: i/o timeout",
	"lookup amqp://rabbit: no such host",
	"amqp://rabbit:5672/orders: refused",
	"kafka://a:9092,kafka://b:9092 unreachable",
	"http://[::1]:8080/health",
	"postgres://app@db:5432/shop",
	"expected redis://host:port",
	"file:///srv/data/in.csv: no such file",
	"/data/in/2026-11-30/part-00012.csv: permission denied",
	`C:\data\in.csv`,
	"https://medium.example.com/@anna/post",
	"github.com/ThreeDotsLabs/watermill@v1.5.3/message/router.go:118",
	"module@v1.5.3-rc.beta react@18.0.0-next.final",
	"pull registry/app:1.25@sha256:9f86d081884c7d65",
	"com.acme.Order@1b6d3586",
	"@app.route is not callable",
	"handler.go:118",
	"rpc error: code = Unavailable desc = upstream connect error",
	`json: cannot unmarshal string into Go struct field Order.total of type int64`,
	`ERROR: duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505): Key (id)=(81923) already exists`,
	`parse "http://h:99999": invalid port ":99999" after host`,
	"-----BEGIN CERTIFICATE-----\nMIID\n-----END CERTIFICATE-----",
	"AKIA is a prefix, AKIAlowercase1234567 is none",
	"eyJ is base64 of an object's beginning",
	"the ghp_ prefix",
	"signature=s1:ab12 sha256=9f86",
	"529.982.247-25 and 11.222.333/0001-81", // CPF and CNPJ are off
	"заказ 123 не найден, quantity ١٢٣ exceeds stock",
	"\xff\xfe broken \x00 bytes",
	"customer \"李小龙\" has no default address",
	"100% of 3=3 a:b c=d e: f",
}

func TestTextLeavesInnocentsAlone(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{})
	if len(innocents) < 40 {
		t.Fatalf("only %d rows", len(innocents))
	}
	for _, text := range innocents {
		if got := r.Text(text); got != text {
			t.Errorf("Text(%q) = %q", text, got)
		}
	}
	for rule, n := range r.Hits() {
		if n != 0 {
			t.Errorf("rule %s has %d hits", rule, n)
		}
	}
}

// It is not parallel, because it counts allocations.
func TestTextWithoutAHitDoesNotAllocate(t *testing.T) {
	r := redactor(t, poison.Redaction{CNPJ: true, Patterns: []poison.Pattern{{Name: "badge", Regexp: `badge-\d+`}}})
	all := strings.ReplaceAll(strings.Join(innocents, "\n"), "11.222.333/0001-81", "")
	if r.Text(all) != all {
		t.Fatal("there is a hit")
	}
	if got := testing.AllocsPerRun(100, func() { r.Text(all) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestBrazilianNumbersAreOptIn(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{CPF: true, CNPJ: true})
	for in, want := range map[string]string{
		"cliente 529.982.247-25 bloqueado":   "cliente <id> bloqueado",
		"cliente 52998224725":                "cliente <id>",
		"cliente 529.982.247-26":             "cliente 529.982.247-26",
		"cliente 111.111.111-11":             "cliente 111.111.111-11",
		"cliente 529982247250":               "cliente 529982247250",
		"empresa 11.222.333/0001-81, ativa":  "empresa <id>, ativa",
		"empresa 11222333000181":             "empresa <id>",
		"empresa 11.222.333/0001-82":         "empresa 11.222.333/0001-82",
		"empresa 12.ABC.345/01DE-35":         "empresa <id>", // the example in the tax office's announcement
		"empresa 12ABC34501DE35":             "empresa <id>",
		"empresa 12.ABC.345/01DE-36":         "empresa 12.ABC.345/01DE-36",
		"empresa 00.000.000/0000-00":         "empresa 00.000.000/0000-00",
		"ABCDEFGHIJKLMN is a word":           "ABCDEFGHIJKLMN is a word",
		"nota 35260411222333000181550010000": "nota 35260411222333000181550010000",
	} {
		if got := r.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUserPatterns(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{Patterns: []poison.Pattern{
		{Name: "badge", Regexp: `\bB-\d{4}\b`},
		{Name: "session", Regexp: `session (\w+)`},
		{Name: "start", Regexp: `^boot\w*`},
		{Name: "maybe", Regexp: `user(:\d+)?!`},
	}})
	got := r.Text("booting bootbadge: B-1234 and B-12345 in session abcd, user! user:7!")
	if want := "<q> bootbadge: <q> and B-12345 in session <q>, user! user<q>!"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	hits := r.Hits()
	for name, want := range map[string]uint64{"badge": 1, "session": 1, "start": 1, "maybe": 1, "email": 0} {
		if hits[name] != want {
			t.Errorf("%s: %d hits, want %d", name, hits[name], want)
		}
	}
}

func TestDisabledRulesAreOff(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{Disable: []poison.Rule{poison.RuleCard, poison.RuleEmail}})
	text := "4111111111111111 of anna@example.com"
	if got := r.Text(text); got != text {
		t.Errorf("got %q", got)
	}
	if _, ok := r.Hits()["card"]; ok {
		t.Error("a disabled rule is counted")
	}
	u, err := url.Parse("amqp://app:hunter2@mq/")
	if err != nil {
		t.Fatal(err)
	}
	off := redactor(t, poison.Redaction{Disable: []poison.Rule{poison.RuleURL}})
	if got := off.URL(u); strings.Contains(got, "hunter2") {
		t.Errorf("URL shows its password: %s", got)
	}
}

func TestNewRedactorNamesAllProblems(t *testing.T) {
	t.Parallel()
	_, err := poison.NewRedactor(poison.Redaction{
		Disable: []poison.Rule{"e-mail"},
		Patterns: []poison.Pattern{
			{Name: "open", Regexp: "("},
			{Name: "all", Regexp: ".*"},
			{Name: "all", Regexp: "x"},
			{Name: "email", Regexp: "x"},
			{Regexp: "x"},
		},
		HideHeaders: []string{""},
		DropHeaders: []string{"", "Spillway-Attempt"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`Disable[0]: there is no rule "e-mail"`, `pattern "open"`, `pattern "all": ".*" matches the empty text`,
		`Patterns[2]: the name "all" is taken`, `Patterns[3]: the name "email" is taken`, `Patterns[4]: the name is empty`,
		`HideHeaders[0]`, `DropHeaders[0]`, `DropHeaders[1]: "Spillway-Attempt"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

func TestTheZeroRedactorRedacts(t *testing.T) {
	t.Parallel()
	var r poison.Redactor
	if got := r.Text("amqp://app:hunter2@mq/"); got != "amqp://app:<q>@mq/" {
		t.Errorf("got %q", got)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{})
	for in, want := range map[string]string{
		"amqp://app:hunter2@mq.example.com:5672/vh?heartbeat=5": "amqp://app:<q>@mq.example.com:5672/vh?heartbeat=5",
		"amqp://app@mq.example.com:5672/":                       "amqp://app@mq.example.com:5672/",
		"kafka://a:9092/?password=x1&tls=on":                    "kafka://a:9092/?password=<q>&tls=on",
		"https://token123@api.example.com/?key=abc":             "https://<q>@api.example.com/?key=<q>",
		"memory://": "memory:",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.URL(u); got != want {
			t.Errorf("URL(%s) = %s, want %s", in, got, want)
		}
	}
	if got := r.URL(nil); got != "" {
		t.Errorf("URL(nil) = %q", got)
	}
}

// O48: secrets in what is shown.
// O49: a rule for named fields hides those only, whatever the form of the rest.
func TestHeadersAsShown(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{HideHeaders: []string{"x-patient"}})
	header := func(key, value string) adapters.Header { return adapters.Header{Key: key, Value: []byte(value)} }
	in := []adapters.Header{
		header("Authorization", "Bearer abc"), header("cookie", "sid=1"), header("Set-Cookie", "sid=2"),
		header("X-Api-Key", "k"), header("x-auth-token", "t"), header("DB_PASSWORD", "p"), header("x-user-session", "s"),
		header("X-Patient", "Anna"), header("signature", "sha256=ab"),
		header("token", ""), header("key", "order-1"), header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		header("reply-to", "anna@example.com"), header("spillway-source-topic", "orders"),
		{Key: "x-secret", Value: []byte("7"), Type: "int64"}, {Key: "bin", Value: []byte{0xff, 0, 1}},
		{Key: "nothing"},
	}
	want := []adapters.Header{
		header("Authorization", "<q>"), header("cookie", "<q>"), header("Set-Cookie", "<q>"),
		header("X-Api-Key", "<q>"), header("x-auth-token", "<q>"), header("DB_PASSWORD", "<q>"), header("x-user-session", "<q>"),
		header("X-Patient", "<q>"), header("signature", "sha256=ab"),
		header("token", ""), header("key", "order-1"), header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
		header("reply-to", "<email>"), header("spillway-source-topic", "orders"),
		{Key: "x-secret", Value: []byte("<q>"), Type: "int64"}, {Key: "bin", Value: []byte{0xff, 0, 1}},
		{Key: "nothing"},
	}
	before := fmt.Sprint(in)
	got := r.Headers(in)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Headers (-want +got):\n%s", diff)
	}
	if fmt.Sprint(in) != before {
		t.Error("the given headers were changed")
	}
	r.Headers(got)
	if hits := r.Hits(); hits["header"] != 9 || hits["email"] != 1 {
		t.Errorf("hits: %v", hits)
	}
}

func TestDroppedHeaders(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{DropHeaders: []string{"X-Customer", "session"}})
	got := r.DroppedHeaders([]adapters.Header{{Key: "x-customer"}, {Key: "other"}, {Key: "X-CUSTOMER"}, {Key: "x-customer"}})
	if diff := cmp.Diff([]string{"x-customer", "X-CUSTOMER"}, got); diff != "" {
		t.Errorf("DroppedHeaders (-want +got):\n%s", diff)
	}
	if got := r.DroppedHeaders([]adapters.Header{{Key: "other"}}); got != nil {
		t.Errorf("got %q", got)
	}
	if diff := cmp.Diff([]string{"X-Customer", "session"}, r.DropHeaders()); diff != "" {
		t.Errorf("DropHeaders (-want +got):\n%s", diff)
	}
}

// K3, O16, O19: a text of any size and content costs a bounded scan, and no
// secret survives because its end was out of sight.
func TestLongTextsAreBounded(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{CPF: true, CNPJ: true})
	for _, part := range hostile {
		text := strings.Repeat(part, 1<<20/len(part)+1)
		got := r.Text(text)
		if len(got) > 2*poison.MaxText {
			t.Errorf("%q repeated: %d bytes are left", part, len(got))
		}
		if utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q repeated: cut inside of a rune", part)
		}
	}

	const secret = "postgres://app:correct-horse-battery-staple@db/shop"
	for pad := poison.MaxText - 2048; pad < poison.MaxText+64; pad++ {
		got := r.Text(strings.Repeat("é", pad/2) + " " + secret + strings.Repeat(" x", 1024))
		if strings.Contains(got, "app:c") {
			t.Fatalf("after %d bytes the beginning of the password is left: %q", pad, got[len(got)-80:])
		}
	}
	// A secret that fills the whole window brings nothing behind it to light.
	got := r.Text(pemBegin + strings.Repeat("\nMIIEow", 1<<15) + pemEnd)
	if got != "<q>" {
		t.Errorf("got %q", got)
	}
}

// hostile are texts that make a careless scanner look at the same bytes again
// and again.
var hostile = []string{
	"é", "://", "a://b:c", "@", "a@", "a@a.", "a:b@h:1", ":", "=", "password=", `password="`, `password='`, `password=\"`,
	"token: ", "token: '' ", "eyJ", "eyJ-", "eyJ.", "eyJ=", "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "Bearer ", "basic a",
	"4111 ", "4111-", "4", "12", "%40", "a%40", `\`, `"`, "--token ", "authorization:", "cookie:", ",a", "key ", `invalid port ":`,
	"password=a;b", "AKIA", "ghp_", "xoxb-", "<password>", "<token>a</", `password "`, "password '", "[password]=", "http://a:b ", "12.ABC.345/01DE-",
}

func TestRedactorIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	r := redactor(t, poison.Redaction{Patterns: []poison.Pattern{{Name: "badge", Regexp: `B-\d+`}}})
	const workers, each = 8, 100
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				r.Text("B-12 for anna@example.com")
				r.Hits()
			}
		})
	}
	wg.Wait()
	if hits := r.Hits(); hits["badge"] != workers*each || hits["email"] != workers*each {
		t.Errorf("hits: %v", hits)
	}
}

func FuzzTextTwiceEqualsOnce(f *testing.F) {
	for _, tt := range secrets {
		f.Add(tt.in)
	}
	for _, text := range innocents {
		f.Add(text)
	}
	for _, part := range hostile {
		f.Add(strings.Repeat(part, 5))
	}
	r := redactor(f, poison.Redaction{CPF: true, CNPJ: true})
	f.Fuzz(func(t *testing.T, text string) {
		once := r.Text(text)
		if len(text) > poison.MaxText/2 {
			return
		}
		if twice := r.Text(once); twice != once {
			t.Errorf("text  %q\nonce  %q\ntwice %q", text, once, twice)
		}
	})
}

func FuzzNoKnownSecretSurvives(f *testing.F) {
	for i := range secrets {
		f.Add("before", uint(i), "after")
		f.Add(`{"error":"`, uint(i), `"}`)
		f.Add("password=", uint(i), ";x=1")
		f.Add("http://a:", uint(i), "@b")
	}
	r := redactor(f, poison.Redaction{})
	f.Fuzz(func(t *testing.T, before string, i uint, after string) {
		row := secrets[i%uint(len(secrets))]
		if len(row.secret) < 7 || strings.Contains(before, row.secret) || strings.Contains(after, row.secret) {
			return
		}
		if got := r.Text(before + "\n" + row.in + "\n" + after); strings.Contains(got, row.secret) {
			t.Errorf("%s: %q is left in %q", row.name, row.secret, got)
		}
	})
}

func BenchmarkText(b *testing.B) {
	r := redactor(b, poison.Redaction{})
	for name, text := range map[string]string{
		"clean":  "load order 48213: Post \"https://api.pay.example.com/v1/charges\": dial tcp 10.42.7.19:443: connect: connection refused (try 3)",
		"secret": "load order 48213: connect postgres://app:hunter2@db:5432/shop: dial tcp 10.42.7.19:5432: connect: connection refused (3)",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Text(text)
			}
		})
	}
	// The most expensive of the hostile texts shows the bound of one call.
	b.Run("hostile", func(b *testing.B) {
		for _, part := range hostile {
			text := strings.Repeat(part, 1<<20/len(part)+1)
			b.Run(fmt.Sprintf("%q", part), func(b *testing.B) {
				for b.Loop() {
					r.Text(text)
				}
			})
		}
	})
}
