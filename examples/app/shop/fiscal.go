package shop

import (
	"encoding/xml"
	"fmt"
	"unicode/utf8"
)

// fiscal is the document about an order that goes to the tax office.
type fiscal struct {
	XMLName    xml.Name `xml:"invoice"`
	Order      xmlText  `xml:"order"`
	Customer   xmlText  `xml:"customer"`
	Cents      int64    `xml:"cents"`
	Instalment int64    `xml:"instalment"`
	Note       xmlText  `xml:"note,omitempty"`
}

func fiscalDocument(o Order, instalment int64) ([]byte, error) {
	document, err := xml.Marshal(fiscal{
		Order: xmlText(o.ID), Customer: xmlText(o.Customer),
		Cents: o.Cents, Instalment: instalment, Note: xmlText(o.Note),
	})
	if err != nil {
		return nil, fmt.Errorf("render fiscal document: %w", err)
	}
	return document, nil
}

// xmlText refuses what XML 1.0 cannot hold. Left alone, encoding/xml would
// write U+FFFD in its place, and the document would say what nobody wrote.
type xmlText string

func (t xmlText) MarshalText() ([]byte, error) {
	for at, r := range string(t) {
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return nil, fmt.Errorf("character %U at byte %d is not allowed in XML 1.0", r, at)
		}
	}
	if !utf8.ValidString(string(t)) {
		return nil, fmt.Errorf("text is not UTF-8")
	}
	return []byte(t), nil
}
