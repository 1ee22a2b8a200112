#!/usr/bin/perl
# Promise: what the pg_regress files expect of kvfdw is what heap does.
#
# Turns the foreign tables of sql/NAME.sql into heap tables with the same
# primary key, runs the file, turns the echoed statements back, and compares
# with expected/NAME.out.  A line that ends with "-- heap: STATEMENT" is that
# statement on heap.
#
#   test/campaign/heapify.pl [--write] NAME...	(PGHOST, PGPORT, PGUSER as for psql)
#   test/campaign/heapify.pl --filter < a.sql > b.sql
#
# --write stores the result as expected/NAME.out instead.
use strict;
use warnings;
use FindBin;

my $root = "$FindBin::RealBin/../..";

# One line at a time, so that the output can be turned back.
sub heapify
{
	my ($line) = @_;
	return $1 if $line =~ /-- heap: (.*)$/;
	return "/**/;" if $line eq 'CREATE EXTENSION IF NOT EXISTS kvfdw;';
	$line =~ s/^(\s*)(CREATE|DROP|ALTER) FOREIGN TABLE/$1$2 TABLE/;
	$line =~ s/EXECUTE format\((['\$]+)CREATE FOREIGN TABLE/EXECUTE format($1CREATE TABLE/;
	if ($line =~ /\bSERVER kvfdw\b/)
	{
		my $key;
		$key = $1 if $line =~ /key ''?([^']+)'/;
		if ($line =~ /PARTITION OF/)
		{
			$key //= 'k';
			$line =~ s/(PARTITION OF \w+)/$1 (PRIMARY KEY ($key))/;
			$line =~ s/ SERVER kvfdw( OPTIONS \([^)]*\))?//;
		}
		else
		{
			$key //= $1 if $line =~ /TABLE \S+ \(\s*(\w+)/;
			$key //= 'k';
			if ($line =~ s/\) INHERITS/, PRIMARY KEY ($key)) INHERITS/) { }
			elsif ($line =~ /^\)/) { $line =~ s/\)/, PRIMARY KEY ($key))/; }
			else { $line =~ s/\)([^)]*) SERVER kvfdw/, PRIMARY KEY ($key))$1 SERVER kvfdw/; }
			$line =~ s/ SERVER kvfdw( OPTIONS \([^)]*\))?//;
		}
	}
	return $line;
}

my $write = 0;
if (@ARGV and $ARGV[0] eq '--filter')
{
	while (<STDIN>) { chomp; print heapify($_), "\n"; }
	exit 0;
}
if (@ARGV and $ARGV[0] eq '--write') { $write = 1; shift @ARGV; }

my $failed = 0;
my $db = 'heapify';
# as pg_regress does
$ENV{PGTZ} = 'PST8PDT';
$ENV{PGDATESTYLE} = 'Postgres, MDY';
$ENV{LC_MESSAGES} = 'C';
$ENV{PG_ABS_SRCDIR} = $root;
for my $name (@ARGV)
{
	my %back;
	my $tmp = "/tmp/heapify.$$";
	local $ENV{PGOPTIONS} = '-c client_min_messages=warning';
	system('psql', '-Xqc', "DROP DATABASE IF EXISTS $db", 'postgres') == 0 or die;
	system('psql', '-Xqc', "CREATE DATABASE $db TEMPLATE template0", 'postgres') == 0 or die;
	system('psql', '-Xqc', "ALTER DATABASE $db SET intervalstyle = 'postgres_verbose'", 'postgres') == 0 or die;
	delete $ENV{PGOPTIONS};
	system('psql', '-Xqc', "CREATE FUNCTION kvfdw_flush(regclass) RETURNS void LANGUAGE sql AS ''; "
		  . "CREATE FUNCTION kvfdw_check(regclass) RETURNS TABLE (file text, \"position\" bigint, problem text) LANGUAGE sql AS 'SELECT NULL::text, 0::bigint, NULL::text WHERE false'", $db) == 0 or die;
	open(my $in, '<', "$root/sql/$name.sql") or die "$name: $!";
	open(my $out, '>', "$tmp.sql") or die;
	while (my $line = <$in>)
	{
		chomp $line;
		my $heap = heapify($line);
		$back{$heap} = $line if $heap ne $line;
		print $out "$heap\n";
	}
	close $out;
	system("psql -Xaq -v HIDE_TABLEAM=on -v HIDE_TOAST_COMPRESSION=on $db <$tmp.sql >$tmp.raw 2>&1");
	open(my $raw, '<', "$tmp.raw") or die;
	my $target = $write ? "$root/expected/$name.out" : "$tmp.out";
	open($out, '>', $target) or die "$target: $!";
	while (my $line = <$raw>)
	{
		chomp $line;
		$line = $back{$line} if exists $back{$line};
		print $out "$line\n";
	}
	close $out;
	next if $write;
	if (system('diff', '-u', "$root/expected/$name.out", $target) == 0) { print "ok heap $name\n"; }
	else { print "not ok heap $name\n"; $failed++; }
	unlink "$tmp.sql", "$tmp.raw", "$tmp.out";
}
exit($failed ? 1 : 0);
