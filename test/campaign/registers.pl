#!/usr/bin/perl
# Promise: what was acknowledged to clients of memcached in mode "on" is there after SIGKILL at any moment, and nothing that
# no client has sent: keys of a client as its first requests leave them, counters that many raise by incr and by cas exactly.
#
#   registers.pl [--rounds N | --seconds N] [--round-seconds N] [--seed N] [--clients N] [--kills N]
#                [--no-control] [--dir DIRECTORY]
#
# Runs a server of its own in DIRECTORY (default: below $TESTDIR or .).  The same table goes through all rounds.  In each round
# clients (KvRegisters.pm) write, the postmaster, one process, or all get SIGKILL, tables are frozen and
# compacted; each client looks at its keys when it is back, and at the end all is read by SQL.  The first round is the control:
# in mode "off" acknowledged requests must be found missing when all processes are killed.  Prints TAP, one test per round.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../perl";
use IO::Socket::INET;
use KvCampaign;
use KvRegisters;

my $option = options('registers', %contest, 'clients=i' => 8, 'kills=i' => 1, 'control!' => 1);
my $port = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport;
my ($made, %total, @known) = (0);

sub make_table
{
	query(($made++ ? 'DROP FOREIGN TABLE cache; ' : '') . KvRegisters::table('cache', 'full') . '; INSERT INTO cache VALUES ' . KvRegisters::counters())
	  // die "the table cannot be made\n";
	(%total, @known) = ();
}

sub contents
{
	my $rows = query("SELECT key, convert_from(value, 'UTF8') FROM cache") // return undef;
	return { map { split /\|/, $_, 2 } @$rows };
}

# Tells the processes which mode it is, and waits until they have heard.
sub set_mode
{
	my ($mode) = @_;
	query("ALTER SYSTEM SET kvfdw.memcached_commit = '$mode'") // return;
	query('SELECT pg_reload_conf()');
	for (1 .. 1800)
	{
		my $s = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 5);
		if ($s)
		{
			print $s "stats settings\r\nquit\r\n";
			return if join('', <$s>) =~ /kvfdw_commit $mode/;
		}
		select undef, undef, undef, 0.1;
	}
	die "the processes do not answer\n";
}

sub play
{
	my ($round) = @_;
	make_table() if $round->{off} || !$made;
	set_mode($round->{off} ? 'off' : 'on');
	my ($results, $story, $wrong) = contest($round->{kills},
		sub { query((q{SELECT kvfdw_flush('cache')}, q{SELECT kvfdw_compact('cache')}, 'CHECKPOINT', q{UPDATE cache SET flags = flags WHERE key LIKE 'incr%'})[ rand 4 ]) },
		map { my $c = $_; sub { KvRegisters->new($c, $port, $known[$c])->run(@_) } } 0 .. $option->{clients} - 1);
	my @wrong = @$wrong;
	my $is = contents();
	my @results = grep { !$_->{error} } @$results;
	push @wrong, defined $is ? KvRegisters::judge($is, \%total, @results) : 'the table cannot be read';
	push @wrong, kvfdw_problems('cache');
	for my $r (@results)
	{
		$known[ $r->{number} ] = { map { ($_ => $is->{$_}) } grep { /^own$r->{number}\./ } keys %{ $is // {} } };
	}
	splice @wrong, 10;
	my $acked = 0;
	$acked += $_->{acked} + @{ $_->{numbers} } for @results;
	if ($round->{off})
	{
		push @$story, @wrong ? "the control: $wrong[0]" : ();
		@wrong = @wrong ? () : 'the control shows nothing wrong';
		make_table();
	}
	return (join('; ', "$acked requests acknowledged", @$story), @wrong);
}

server_make(fsync => 'off', max_worker_processes => 32, wal_writer_delay => '10s', 'kvfdw.memcached_workers' => 2, 'kvfdw.memcached_database' => 'postgres', 'kvfdw.memcached_role' => 'web',
	'kvfdw.memcached_listen' => '127.0.0.1', 'kvfdw.memcached_port' => $port, 'kvfdw.memcached_lock_timeout' => '100s');
query('CREATE ROLE web LOGIN') // die "the role cannot be made\n";
exit campaign(control => [ $option->{control} ? { off => 1, kills => 4 } : () ], rounds => 2, play => \&play);
