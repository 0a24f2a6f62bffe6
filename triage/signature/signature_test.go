package signature_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/triage/signature"
)

var verbose = flag.Bool("show", false, "log the normalised texts")

// The pairs that must fall together, and those that must not.
var pairs = []struct {
	id   string
	same bool
	a, b string
}{
	{"P01", true, "order 48213 not found", "order 7 not found"},
	{"P03", true, "dial tcp 10.42.7.19:5432: connect: connection refused", "dial tcp 10.42.9.200:5432: connect: connection refused"},
	{"P05", true, "read tcp 10.1.4.7:51234->10.2.0.11:9092: read: connection reset by peer", "read tcp 10.1.9.88:40022->10.2.0.13:9092: read: connection reset by peer"},
	{"P07", true, "lock wait timed out after 2m30.512s", "lock wait timed out after 350ms"},
	{"accounts with digits", true, "Failed password for invalid user test9 from 10.1.2.3 port 22", "Failed password for invalid user webmaster from 10.9.2.3 port 41"},
	{"versions of TLS", false, "handshake: TLS 1.0 refused", "handshake: TLS 1.2 refused"},
	{"names of codes", false, "upstream trailer grpc-status: 14", "upstream trailer grpc-status: 5"},
	{"P09", false, "payment gateway: unexpected status 503", "payment gateway: unexpected status 404"},
	{"P11", true, `duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505): Key (id)=(81923) already exists`, `duplicate key value violates unique constraint "orders_pkey" (SQLSTATE 23505): Key (id)=(4) already exists`},
	{"P13", true, `customer "Anna Kowalska" has no default address`, `customer "李小龙" has no default address`},
	{"P15", false, "json: cannot unmarshal string into Go struct field Order.total of type int64", "json: cannot unmarshal string into Go struct field Order.total of type int32"},
	{"P17", false, `Post "https://api.pay.example.com/v1/charges": context deadline exceeded`, `Post "https://api.mail.example.com/v3/send": context deadline exceeded`},
	{"P19", true, "open /data/in/2026-11-30/part-00012.csv: no such file or directory", "open /data/in/2026-12-01/part-00977.csv: no such file or directory"},
	{"P21", true, "panic: runtime error: invalid memory address or nil pointer dereference [recovered] handler.go:118", "panic: runtime error: invalid memory address or nil pointer dereference [recovered] handler.go:124"},
	{"P23", true, "panic: boom\ngoroutine 4123 [running]:\nmain.handle(0xc000123450)\n\t/app/main.go:12", "panic: boom\ngoroutine 19 [running]:\nmain.handle(0xc00098ab00)\n\t/app/main.go:14"},
	{"P25", true, "token expired at 2026-11-30T20:07:57Z", "token expired at 2026-01-02T03:04:05.123456789+02:00"},
	{"P27", true, "quantity ١٢٣ exceeds stock", "quantity 45 exceeds stock"},
	{"P29", false, "invalid UTF-8 in header", "invalid UTF-16 in header"},
	{"P31", true, "can't parse amount '12,50' for user 'anna'", "can't parse amount '7' for user 'bob'"},
	{"P33", true, "DELETE FROM orders WHERE id IN (1, 2, 3): deadlock detected", "DELETE FROM orders WHERE id IN (9, 11): deadlock detected"},
	{"P35", false, `{"code":422,"error":"invalid sku"}`, `{"code":409,"error":"invalid sku"}`},
	{"P37", false, "exit status 1", "exit status 137"},
	{"P39", true, "validate: amount -5.00 is negative", "validate: amount -1204.5 is negative"},
	{"P41", false, "rpc error: code = Unavailable desc = upstream connect error", "rpc error: code = NotFound desc = upstream connect error"},
	{"P43", false, "decode order: unexpected EOF", "decode invoice: unexpected EOF"},
	{"P45", false, "unsupported schema version 3", "unsupported schema version 4"},
	{"P47", true, "first error: order 5 missing\nsecond error: order 6 missing", "first error: order 51 missing\r\nsecond error: order 4096 missing"},

	// S2: octal quotation marks. S3: a size said twice. S4: addresses on a bus.
	{"S2 value", true, `customer \042Anna K\042 refused`, `customer \042Bob\042 refused`},
	{"S2 plain", true, `customer \042Anna K\042 refused`, `customer "Bob" refused`},
	{"S2 single", true, `customer \047Anna\047 refused`, `customer 'Bob' refused`},
	{"S2 name", false, `unknown field \042discount\042`, `unknown field \042total\042`},
	{"S2 no quotation mark", false, `bad escape \041`, `bad escape "`},
	{"S3", true, "sent 1190 bytes (1.16 KB) to peer", "sent 77 bytes to peer"},
	{"S3 another thing", false, "sent 77 bytes (compressed)", "sent 77 bytes"},
	{"S4", true, "pci 0000:00:1d.0: enabling device", "pci 0000:01:02.3: enabling device"},
	{"S4 short", true, "pcieport 00:1d.7: AER", "pcieport af:00.0: AER"},
	{"S4 no address", false, "pair 00:zz.0 away", "pair 00:yy.0 away"},

	// One number more or less in a list, and lists without brackets.
	{"list of one", true, "ids IN (5): deadlock", "ids IN (1, 2, 3): deadlock"},
	{"brackets", true, "partitions [1 2 3] lagging", "partitions [7 9] lagging"},
	{"names", true, "blocks blk_1 blk_2 blk_3 corrupt", "blocks blk_-77 corrupt"},
	// Numbers.
	{"groups", true, "limit 1,204 exceeded", "limit 1_000 exceeded"},
	{"exponent", true, "value 1.5e+10 out of range", "value -3 out of range"},
	{"percent", true, "disk 95% full", "disk 7.5% full"},
	{"full-width digits", true, "quantity ４５ exceeds stock", "quantity 45 exceeds stock"},
	{"devanagari digits", true, "quantity ४५ exceeds stock", "quantity 45 exceeds stock"},
	{"glued to cyrillic", true, "заказ123 не найден", "заказ77 не найден"},
	// Codes.
	{"http", false, "HTTP 404 from catalog", "HTTP 503 from catalog"},
	{"status code", false, "unexpected status code: 500", "unexpected status code: 429"},
	{"status=", false, "upstream failed status=503", "upstream failed status=404"},
	{"sqlstate", false, "ERROR: violates (SQLSTATE 23505)", "ERROR: violates (SQLSTATE 23503)"},
	{"sqlstate with letters", false, "ERROR: failed (SQLSTATE 40P01)", "ERROR: failed (SQLSTATE 40001)"},
	{"errno", false, "write failed: errno 28", "write failed: errno 5"},
	{"signal", false, "worker died: signal 9", "worker died: signal 11"},
	{"mysql", false, "Error 1062: Duplicate entry", "Error 1205: Lock wait timeout"},
	{"oracle", false, "ORA-00942: failed", "ORA-01017: failed"},
	{"windows", false, "failed [HRESULT = 0x800f080d]", "failed [HRESULT = 0x80070005]"},
	{"http version", false, "HTTP/2 stream closed", "HTTP/1.1 stream closed"},
	{"version of an order", true, "stale version 7 of order", "stale version 8 of order"},
	{"http/1.1", false, "upstream: HTTP/1.1 503 Service Unavailable", "upstream: HTTP/1.1 404 Not Found"},
	{"returned", false, "GET /orders/5 returned 404", "GET /orders/7 returned 500"},
	{"failed with", false, "call failed with 503: retry", "call failed with 429: retry"},
	{"exited with", false, "worker exited with 137", "worker exited with 139"},
	{"returned rows", true, "query returned 404 rows", "query returned 500 rows"},
	{"degrees", true, "temperature -12.5°C below minimum", "temperature -3°C below minimum"},
	// Terms.
	{"x509", false, "x509: bad certificate", "x508: bad certificate"},
	{"s3", false, "s3 bucket away", "s4 bucket away"},
	{"sha", false, "sha-256 mismatch", "sha-512 mismatch"},
	{"v2", false, "api v2 is gone", "api v3 is gone"},
	{"ipv", false, "no ipv4 route", "no ipv6 route"},
	// Ids.
	{"uuid", true, "order 8f14e45f-ceea-467f-a8c2-1a2b3c4d5e6f failed", "order 00000000-0000-0000-0000-000000000000 failed"},
	{"ulid", true, "order 01ARZ3NDEKTSV4RRFFQ69G5FAV failed", "order 01BX5ZZKBKACTAV9WEVGEMMVRZ failed"},
	{"hex", true, "commit 9fceb02 missing", "commit 1234567 missing"},
	{"code point", true, "character U+000B at byte 17 is not allowed", "character U+001F at byte 4 is not allowed"},
	{"code point of letters", true, "cannot write U+FFFD in Latin-1", "cannot write U+1F600 in Latin-1"},
	{"no code point", false, "cannot write U+FFFDs in Latin-1", "cannot write U+FFFD in Latin-1"},
	{"pointer", true, "bad handle 0xc000123450", "bad handle 0xc0000a8000"},
	{"mixed", true, "token k3J9xQ27Lm expired", "token a81Bz0qq2 expired"},
	{"pod", true, "pod payments-7d9f8b6c5d-x2x4q evicted", "pod payments-66b4c9f7d8-zk9wl evicted"},
	{"pods of two services", false, "pod payments-7d9f8b6c5d-x2x4q evicted", "pod invoices-66b4c9f7d8-zk9wl evicted"},
	{"worker", true, "worker-12 stopped", "worker-7 stopped"},
	// Addresses.
	{"ip versions", true, "dial tcp [::1]:5432: refused", "dial tcp 127.0.0.1:5432: refused"},
	{"ipv6", true, "no route to fe80::1ff:fe23:4567:890a", "no route to 2001:db8::1"},
	{"lookup", true, "lookup db-3.prod.example.com on 10.0.0.2:53: no such host", "lookup db-11.prod.example.com on 10.0.0.3:53: no such host"},
	{"hosts without digits", false, "lookup db.prod.example.com: no such host", "lookup cache.prod.example.com: no such host"},
	{"e-mail", true, "no user anna.k+x@example.com", "no user bob@mail.example.org"},
	// URLs and paths.
	{"path of a url", true, `Get "https://api.example.com/v1/orders/5?x=1": EOF`, `Get "https://api.example.com/v1/orders/77": EOF`},
	{"user of a url", true, "dial amqp://guest:guest@broker.example.com:5672/: EOF", "dial amqp://broker.example.com:5672/: EOF"},
	{"directories", false, "open /etc/app/config.yaml: denied", "open /var/lib/app/state.db: denied"},
	{"route", false, "POST /v1/orders/5/lines failed", "POST /v1/orders/5/taxes failed"},
	{"route and id", true, "POST /v1/orders/5/lines failed", "POST /v1/orders/6/lines failed"},
	// Times and sizes.
	{"dates", true, "report for 2026-11-30 missing", "report for 2025-01-02 missing"},
	{"rfc 1123", true, "not before Mon, 30 Nov 2026 10:00:00 GMT", "not before Tue, 01 Dec 2026 23:59:59 GMT"},
	{"go time", true, "since 2026-11-30 20:07:57.123 +0000 UTC m=+12.345", "since 2026-12-01 01:00:00 +0000 UTC m=+0.1"},
	{"unix date", true, "at Sat Jun 18 02:08:10 2005 lost", "at Mon Jun  6 12:00:00 2005 lost"},
	{"micro signs", true, "took 1.5µs", "took 20μs"},
	{"seconds", true, "slept 30 seconds, retrying", "slept 1 second, retrying"},
	{"sizes", true, "message of 10MB too large", "message of 512 KiB too large"},
	{"bytes", true, "read 77 bytes, want more", "read 1048576 bytes, want more"},
	// Quotations.
	{"fields", false, `json: unknown field "amount"`, `json: unknown field "currency"`},
	{"fields with digits", false, `unknown field "line1"`, `unknown field "line2"`},
	{"required", false, `"amount" is required`, `"currency" is required`},
	{"headers", false, "missing header 'X-Tenant'", "missing header 'X-Trace'"},
	{"javascript", false, "Cannot read properties of undefined (reading 'amount')", "Cannot read properties of undefined (reading 'currency')"},
	{"java null", false, `Cannot invoke "com.acme.Order.total()" because it is null`, `Cannot invoke "com.acme.Item.sku()" because it is null`},
	{"tables", false, `relation "orders" does not exist`, `relation "invoices" does not exist`},
	{"escaped", true, `rejected: \"Anna\" is unknown`, `rejected: \"Bob B\" is unknown`},
	{"curly", true, "customer “Anna” unknown", "customer “Bob” unknown"},
	{"backtick", true, "customer `a` unknown", "customer `b b` unknown"},
	// JSON.
	{"json order", true, `{"error":"no stock","orderId":5,"at":"x"}`, `{"at":"yy","orderId":99,"error":"no stock"}`},
	{"json tail", true, `upstream said: {"code":"E1","id":"abc"}`, `upstream said: {"id":"zzz","code":"E1"}`},
	{"json tails", false, `upstream said: {"code":"OUT_OF_STOCK","id":"abc"}`, `upstream said: {"id":"zzz","code":"NO_SUCH_SKU"}`},
	// Lines.
	{"causes", false, "2 errors:\norder missing\nstock missing", "2 errors:\norder missing\nprice missing"},
	{"java", true, "java.lang.IllegalStateException: no order\n\tat com.x.A.b(A.java:12)\n\tat com.x.C.d(C.java:9)", "java.lang.IllegalStateException: no order\n\tat com.y.Z.b(Z.java:99)"},
	{"colours", true, "\x1b[31morder 5 failed\x1b[0m", "order 6 failed"},
	{"blanks", true, "  order\t5   failed. ", "order 5 failed"},
	{"case", false, "Order failed", "order failed"},
	{"name=value", true, "rejected tenant=acme order=5", "rejected tenant=globex order=77"},
	{"reason=", false, "rejected reason=fraud", "rejected reason=stock"},
}

func TestPairs(t *testing.T) {
	t.Parallel()
	for _, p := range pairs {
		t.Run(p.id, func(t *testing.T) {
			t.Parallel()
			a, b := signature.Of(p.a), signature.Of(p.b)
			if *verbose {
				t.Logf("%s\n%s", a.Text, b.Text)
			}
			if (a.ID == b.ID) != p.same {
				t.Errorf("same: %v, want %v\n%s\n%s", a.ID == b.ID, p.same, a.Text, b.Text)
			}
			for _, s := range [...]signature.Signature{a, b} {
				if !strings.HasPrefix(s.ID, "s1:") || len(s.ID) != len("s1:")+16 {
					t.Errorf("id %q", s.ID)
				}
			}
		})
	}
}
