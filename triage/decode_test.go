package triage

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/triage/signature"
)

// forms are dead letters in all forms, and what is nearly one.
var forms = []string{
	`{"deadLetterId":"a","failedMessage":{"id":"m","type":"T","aggregate":"order-5","key":"k","headers":[{"key":"h","value":"v","type":"string"}],"droppedHeaders":["x"],"payload":"{\"a\":1}"},"failure":{"class":"validation","nature":"permanent","code":"pg:23505","message":"order \"5\" \u00e9 \ud83d\ude00 failed\nx","truncated":true,"reason":"permanent","attempts":3,"firstAttemptAt":"2026-01-02T03:04:05.123456789Z","failedAt":"2026-01-31T03:04:05Z"},"source":{"broker":"kafka","topic":"orders","partition":0,"offset":17,"timestamp":"2026-01-02T03:04:05+02:00"},"consumer":{"group":"billing","handler":"h","version":"1.2.3"},"producer":{"version":"1","schemaVersion":"2"},"traceId":"t","reference":"customer/5","replay":{"id":"r","of":"o","reason":"x","count":1}}`,
	`{"payload":"x","errorClass":"validation","errorMessage":"order 5","consumerVersion":"1.0","traceId":"t","attempts":3,"firstAttemptAt":"2026-01-02T03:04:05Z","deadLetteredAt":"2026-01-02T03:04:06Z"}`,
	`{"payload":{"a":[1,2.5e3,-0,true,null]},"errorMessage":"x"}`,
	`{"errorMessage":null}`, `{"errorMessage":5}`, `{"errorClass":true,"payload":1}`, `{"errorMessage":{}}`,
	`{"payloadBase64":"aGk=","errorMessage":"x","deadLetterId":"q"}`, `{"payloadBase64":"aGk","errorMessage":"x"}`,
	`{"failedMessage":{"id":5,"aggregate":{"x":1}},"failure":{"code":"E1","message":"m","attempts":"3","failedAt":"2026-01-02T03:04:06z"},"source":"orders"}`,
	`{"failedMessage":"text","failure":{"message":"m"},"source":{"topic":"t"}}`,
	`{"failedMessage":"text","source":5}`, `{"failedMessage":"x","failure":7}`, `{"failedMessage":"x","failure":null}`,
	`{"deadLetterId":"a","failedMessage":"x"}`, `{"deadLetterId":"a","failedMessage":null}`, `{"deadLetterId":"","failedMessage":{}}`,
	`{"deadLetterId":"a","failedMessage":{"headers":{"a":"b","c":["d"]}}}`, `{"deadLetterId":"a","failedMessage":{"headers":[{}]}}`,
	`{"deadLetterId":"a","failedMessage":{"headers":[{"key":5}],"keyBase64":"!"}}`,
	`{"deadLetterId":"a","failedMessage":{"droppedHeaders":"x"}}`, `{"deadLetterId":"a","failedMessage":{},"consumer":[]}`,
	`{"deadLetterId":"a","failedMessage":{},"replay":{"count":-1}}`, `{"deadLetterId":"a","failedMessage":{},"producer":5}`,
	`{"deadLetterId":"a","deadLetterId":"b","failedMessage":{},"failure":{"class":"x","class":"y"}}`,
	`{"dead\u004cetterId":"a","failedMessage":{"aggregate":"\ud800 \udc00"}}`,
	`{"errorMessage":"a","payload":"` + "\xff" + `"}`, `{"errorMessage":"` + "\xff\xfe" + `"}`, "{\"errorMessage\":\"a\tb\"}",
	`{"errorMessage":"x","attempts":01}`, `{"errorMessage":"x","attempts":1.0}`, `{"errorMessage":"x","attempts":1000001}`, `{"errorMessage":"x","attempts":""}`,
	`{"errorMessage":"x","firstAttemptAt":""}`, `{"errorMessage":"x","firstAttemptAt":"yesterday"}`, `{"errorMessage":"x","deadLetteredAt":"2026-02-30T00:00:00Z"}`,
	`{"errorMessage":"x","deadLetteredAt":"0000-01-01T00:00:00Z"}`, `{"errorMessage":"x","deadLetteredAt":"2026-01-02T03:04:05.1234567891234Z"}`,
	`{"errorMessage":"x","deadLetteredAt":1767323045}`, `{"errorMessage":"x"} x`, `{"errorMessage":"x",}`, `{"errorMessage":"x"`, `{`, `[]`, `null`, `""`, `5`, ``, `{}`, `{"x":1}`,
	` { "errorMessage" : "x" , "other" : { "a" : [ ] } } `, `{"errorMessage":"\x"}`, `{"errorMessage":"\u12"}`, `{"errorMessage":"` + strings.Repeat("abcdefg", 40) + `\\"}`,
	`{"ERRORMESSAGE":"x"}`, `{"errorMessage":tru}`, `{"errorMessage":-}`, `{"payload":1.}`, `{"payload":[1,]}`, strings.Repeat(`{"payload":`, 70) + "1" + strings.Repeat("}", 70),
}

func agrees(t *testing.T, line string) {
	t.Helper()
	var d decoder
	got, gotErr := d.decode(line, []byte(line))
	dl, wantErr := envelope.DecodeDeadLetter([]byte(line))
	if errors.Is(wantErr, envelope.ErrUnknownForm) && line != "null" {
		if gotErr != nil || got.Class != Unknown || got.Text == "" || got.Key(signature.Of(got.Text)).Version != Unknown {
			t.Fatalf("%s\n%+v, %v", line, got, gotErr)
		}
		return
	}
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("%s\n%v, want %v", line, gotErr, wantErr)
	}
	if wantErr != nil {
		return
	}
	if diff := cmp.Diff(EntryOf(dl), got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", line, diff)
	}
}

func TestShortWayAgreesWithEnvelope(t *testing.T) {
	t.Parallel()
	for _, line := range forms {
		agrees(t, line)
	}
	// And it is taken for what Spillway and others write.
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	own, err := json.Marshal(envelope.DeadLetter{
		ID: "a", FailedMessage: envelope.FailedMessage{ID: "m", Key: []byte{0xff}, Payload: []byte("{\"a\":\"\\u00e9\"}"), Headers: []envelope.Header{{Key: "k", Value: []byte{0xfe}}}},
		Failure: envelope.FailureInfo{Class: failure.ClassPanic, Nature: failure.NatureUnknown, Message: "boom: \"x\" <é>\n", Attempts: 3, FirstAttemptAt: at, FailedAt: at},
		Source:  envelope.SourceInfo{Broker: "kafka", Position: envelope.Position{Topic: "t", Partition: new(int32(3)), Offset: new(int64(1 << 40))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	agrees(t, string(own))
	for _, line := range append(forms[:3:3], string(own), forms[10]) {
		var d decoder
		if _, ok := d.short(line, []byte(line)); !ok {
			t.Errorf("the long way is taken for %s", line)
		}
	}
}

func FuzzShortWay(f *testing.F) {
	for _, line := range forms {
		f.Add(line)
	}
	f.Fuzz(agrees)
}
