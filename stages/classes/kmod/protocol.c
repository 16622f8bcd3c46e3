// SPDX-License-Identifier: GPL-2.0
/*
 * See protocol.h. Nothing here parses a stream: a few bytes at the beginning of a segment, which a client can make whatever it likes.
 * A client that lies changes what its own connection is taken for, until the service answers, and nobody else's: what a service speaks
 * is believed of the service only (`speaks_tls`, `speaks_h2`).
 */
#include <linux/skbuff.h>

#include "compat.h"
#include "protocol.h"

#define READ_MOST 16
#define INTERIM_MOST 512	/* bytes of an interim answer that are looked through for its end */

/* Types of TLS records (RFC 8446, section 5.1), from change_cipher_spec to application_data, and of its handshake's first messages. */
#define TLS_FIRST 20
#define TLS_ALERT 21
#define TLS_HANDSHAKE 22
#define TLS_LAST 23	/* application_data */
#define TLS_CLIENT_HELLO 1
#define TLS_SERVER_HELLO 2
#define TLS_RECORD_HEADER 5
/*
 * Bytes of a record with the largest frame of HTTP/2 that opens a window (13 bytes), by TLS 1.2 with AES-GCM (RFC 5288): 5 + 8 + 13 + 16.
 * TLS 1.3 has 7 fewer. A request that names its host and its client is longer.
 */
#define NOTICE_MOST 42

/*
 * The beginning of an HTTP/2 connection (RFC 9113, section 3.4), and types of frames (section 6): of the one that the server begins with,
 * and the last. A frame begins with its length, whose first byte is 0 as long as nobody asks for frames of more than 64 KiB.
 */
#define PREFACE "PRI * HTTP/2.0"
#define H2_SETTINGS 4
#define H2_CONTINUATION 9

/* Long headers of QUIC (RFC 9000, section 17.2): the first packets of a connection; another type in version 2 (RFC 9369). */
#define QUIC_LONG 0xc0
#define QUIC_V2 0x6b3343cf

#define DNS_IS_RESPONSE 0x80	/* QR, in the third byte (RFC 1035, section 4.1.1) */

struct beginning {
	const u8 *bytes;
	u32 count;
	u8 room[READ_MOST];
};

/* Where the payload begins with the first fragment, as what TCP sends does, it can be read there; or NULL. */
static __always_inline const u8 *in_first_fragment(const struct sk_buff *skb, u32 offset, u32 count)
{
	const skb_frag_t *fragment = skb_shinfo(skb)->frags;

	if (offset != skb_headlen(skb) || !skb_shinfo(skb)->nr_frags || count > skb_frag_size(fragment))
		return NULL;
	return skb_frag_address_safe(fragment);
}

/* The first bytes of the payload. */
static __always_inline bool read_beginning(const struct sk_buff *skb, const struct packet *packet, struct beginning *beginning)
{
	beginning->count = min_t(u32, packet->payload, READ_MOST);
	beginning->bytes = in_first_fragment(skb, packet->payload_offset, beginning->count) ?:
			   skb_header_pointer(skb, packet->payload_offset, beginning->count, beginning->room);
	return beginning->bytes && beginning->count >= 3;
}

static bool is_tls(const struct beginning *beginning)
{
	const u8 *bytes = beginning->bytes;

	return bytes[0] >= TLS_FIRST && bytes[0] <= TLS_LAST && bytes[1] == 3 && bytes[2] <= 4;
}

/* A handshake's first message, from this side. */
static bool is_hello(const struct beginning *beginning, u8 message)
{
	return beginning->count >= 6 && is_tls(beginning) && beginning->bytes[0] == TLS_HANDSHAKE && beginning->bytes[5] == message;
}

/* One whole record, so short that it may ask for nothing, as an alert does not. */
static bool is_notice(const struct beginning *beginning, const struct packet *packet)
{
	const u8 *bytes = beginning->bytes;

	return packet->payload <= NOTICE_MOST && beginning->count >= TLS_RECORD_HEADER && is_tls(beginning) &&
	       (bytes[0] == TLS_ALERT || bytes[0] == TLS_LAST) &&
	       get_unaligned_be16(bytes + 3) + TLS_RECORD_HEADER == packet->payload;
}

static bool is_preface(const struct beginning *beginning)
{
	return beginning->count >= strlen(PREFACE) && !memcmp(beginning->bytes, PREFACE, strlen(PREFACE));
}

static bool is_frame(const struct beginning *beginning)
{
	const u8 *bytes = beginning->bytes;

	return beginning->count >= 9 && !bytes[0] && bytes[3] <= H2_CONTINUATION && !(bytes[5] >> 7);
}

/* Of settings of 6 bytes each, for the connection and not for one of its streams. */
static bool is_settings(const struct beginning *beginning)
{
	const u8 *bytes = beginning->bytes;

	return is_frame(beginning) && bytes[3] == H2_SETTINGS && bytes[4] <= 1 && !get_unaligned_be32(bytes + 5) &&
	       get_unaligned_be16(bytes + 1) % 6 == 0;
}

static bool is_initial(const struct beginning *beginning)
{
	u32 version, type = beginning->bytes[0] >> 4 & 3;

	if (beginning->count < 5 || (beginning->bytes[0] & QUIC_LONG) != QUIC_LONG)
		return false;
	version = get_unaligned_be32(beginning->bytes + 1);
	return version && type == (version == QUIC_V2);
}

/* Of a connection of QUIC, only the beginning can be told from what anybody may send. */
static enum unit unit_of_datagram(const struct classes *classes, const struct sk_buff *skb, const struct packet *packet)
{
	struct beginning beginning not_zeroed;
	bool is_read = read_beginning(skb, packet, &beginning);

	if (classes->protocol == TARN_CLASSES_CONNECTION)
		return is_read && is_initial(&beginning) ? UNIT_SESSION : UNIT_NONE;
	return is_read && beginning.bytes[2] & DNS_IS_RESPONSE ? UNIT_NONE : UNIT_EXCHANGE;
}

enum unit protocol_read_unit(const struct classes *classes, const struct sk_buff *skb, struct packet *packet)
{
	u32 port = ntohs(packet->key.local_port);
	struct beginning beginning not_zeroed;
	bool is_read, may_open, goes_on;

	if (packet->key.protocol == IPPROTO_UDP)
		return unit_of_datagram(classes, skb, packet);
	/* Where nobody has shown to be at his address, there is no connection. */
	may_open = packet->is_first && packet->is_proven;
	if (packet->is_first && classes->protocol == TARN_CLASSES_CONNECTION)
		return may_open ? UNIT_SESSION : UNIT_EXCHANGE;
	is_read = read_beginning(skb, packet, &beginning);
	packet->is_notice = is_read && !packet->is_first && is_notice(&beginning, packet);
	if (classes->protocol == TARN_CLASSES_CONNECTION)
		return UNIT_SESSION_GOES_ON;
	/* A segment of a byte or two: the beginning of something that is seen when the rest comes. */
	if (!is_read)
		return UNIT_EXCHANGE;
	if (may_open) {
		packet->is_h2 = is_preface(&beginning);
		return packet->is_h2 || is_hello(&beginning, TLS_CLIENT_HELLO) ? UNIT_SESSION : UNIT_EXCHANGE;
	}
	if (packet->is_first)
		return UNIT_EXCHANGE;
	goes_on = (test_bit(port, classes->speaks_tls) && is_tls(&beginning)) ||
		  (test_bit(port, classes->speaks_h2) && is_frame(&beginning));
	return goes_on ? UNIT_SESSION_GOES_ON : UNIT_EXCHANGE;
}

/* "HTTP/1.1 1xx", which another answer follows (RFC 9110, section 15.2); but 101 is the last one of HTTP. */
static bool is_informational(const struct beginning *beginning)
{
	const u8 *bytes = beginning->bytes;

	return beginning->count >= 12 && !memcmp(bytes, "HTTP/1.", 7) && bytes[8] == ' ' && bytes[9] == '1' && bytes[10] == '0';
}

/* Whether something follows the interim answer in the same segment. */
static bool has_more(const struct sk_buff *skb, const struct packet *packet)
{
	u8 room[INTERIM_MOST];
	u32 i, count = min_t(u32, packet->payload, INTERIM_MOST);
	const u8 *bytes = skb_header_pointer(skb, packet->payload_offset, count, room);

	for (i = 4; bytes && i <= count; i++)
		if (!memcmp(bytes + i - 4, "\r\n\r\n", 4))
			return i < packet->payload;
	return false;
}

static enum answer answer_of_session(const struct beginning *beginning)
{
	if (is_hello(beginning, TLS_SERVER_HELLO))
		return ANSWER_OF_TLS;
	return is_settings(beginning) ? ANSWER_OF_H2 : ANSWER_WHOLE;
}

enum answer protocol_read_answer(const struct classes *classes, const struct sk_buff *skb, const struct packet *packet, bool is_session)
{
	struct beginning beginning not_zeroed;

	if (!read_beginning(skb, packet, &beginning))
		return ANSWER_WHOLE;
	if (is_session)
		return answer_of_session(&beginning);
	if (likely(!is_informational(&beginning)))
		return ANSWER_WHOLE;
	if (beginning.bytes[11] == '1')
		return classes->protocol == TARN_CLASSES_HTTP ? ANSWER_UPGRADES : ANSWER_WHOLE;
	return has_more(skb, packet) ? ANSWER_WHOLE : ANSWER_INTERIM;
}
