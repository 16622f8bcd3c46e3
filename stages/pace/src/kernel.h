/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Of the kernel's TCP what the program reads and writes. Where it stands is asked of the running kernel when the program is loaded
 * (CO-RE).
 *
 * Of a socket a congestion control may write (net/ipv4/bpf_tcp_ca.c, bpf_tcp_ca_btf_struct_access): sk_pacing_rate, sk_pacing_status,
 * icsk_ca_priv, snd_cwnd, snd_cwnd_cnt, snd_cwnd_stamp, snd_ssthresh, ecn_flags; app_limited from 6.9 on.
 */
#ifndef TARN_PACE_KERNEL_H
#define TARN_PACE_KERNEL_H

#include "vmlinux.h"

/* Kernels compile these as a union and as bit fields: written as what they are where a program needs them. */
#define SK_PACING_NONE 0
#define SK_PACING_NEEDED 1
#define SK_PACING_FQ 2
#define TCP_CONG_NON_RESTRICTED 1	/* include/net/tcp.h */

struct sock {
	unsigned long sk_pacing_rate, sk_max_pacing_rate;	/* bytes a second */
	__u32 sk_pacing_status;
} __attribute__((preserve_access_index));

struct tcp_congestion_ops;

/* It begins with a struct sock. */
struct inet_connection_sock {
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_setsockopt : 1;	/* its process has chosen it */
	__u64 icsk_ca_priv[13];
} __attribute__((preserve_access_index));

struct tcp_options_received {
	__u32 rcv_tsval;	/* of the last packet (RFC 7323); 0: none */
} __attribute__((preserve_access_index));

/* It begins with a struct inet_connection_sock. */
struct tcp_sock {
	__u64 tcp_mstamp;	/* us, of the last packet */
	__u32 packets_out, sacked_out, lost_out, retrans_out;
	__u32 snd_cwnd, snd_cwnd_clamp, snd_ssthresh;
	__u32 delivered, lost;	/* packets */
	__u32 app_limited;	/* 0: there is always something to send */
	__u32 srtt_us;		/* times 8 */
	__u32 mss_cache;	/* bytes */
	__u32 total_retrans;	/* packets sent again */
	__u32 snd_una, snd_nxt, snd_wnd;	/* bytes: acknowledged and sent up to there, and what the receiver has room for */
	__u64 bytes_acked;
	struct tcp_options_received rx_opt;
} __attribute__((preserve_access_index));

struct rate_sample {
	__u32 prior_delivered;
	__s32 delivered;
	long interval_us;
	long rtt_us;
	int losses;
	__u32 acked_sacked;
	__u32 prior_in_flight;
	_Bool is_app_limited;
	_Bool is_ack_delayed;
} __attribute__((preserve_access_index));

enum tcp_ca_event {
	CA_EVENT_TX_START,	/* it sends with nothing under way */
};

/*
 * A congestion control. libbpf finds the members by their names in the running kernel's: those that it lacks must be none.
 * cong_control() has two arguments before 6.10, and four from then on.
 */
struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, __u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*cwnd_event_tx_start)(struct sock *sk);	/* from 7.1 on; then cwnd_event() hears of no CA_EVENT_TX_START */
	__u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk, __u32 ack, int flag, const struct rate_sample *rs);
	__u32 (*undo_cwnd)(struct sock *sk);
	__u32 (*sndbuf_expand)(struct sock *sk);
	__u32 flags;
	char name[16];
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#endif
