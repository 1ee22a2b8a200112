#!/usr/bin/perl
# Promise: each block of docs/tutorial.md runs, one after the other in one shell, and prints what the
# block of text after it shows.
#
#   tutorial.pl docs/tutorial.md directory
#
# Blocks of sh are run as they are, blocks of sql by psql, which stops at errors.  sudo is not used: the
# caller has one in PATH that does what can be done without it.  Who runs this is not root.
use strict;
use warnings;
use Config;

my ($document, $dir) = @ARGV;

# What is killed and nobody waits for is reaped here, not by an init that is slow or that a container lacks.
my $prctl = { 'x86_64' => 157, 'aarch64' => 167 }->{ $Config{archname} =~ s/-.*//r };
syscall($prctl, 36, 1, 0, 0, 0) if $prctl;

open my $in, '<', $document or die "$document: $!";
my ($heading, @blocks);
while (<$in>)
{
	$heading = $1 if /^#+ (.*)$/;
	next unless /^```(\w*)$/;
	my ($kind, $text) = ($1, '');
	while (<$in>)
	{
		last if /^```$/;
		$text .= $_;
	}
	if ($kind eq 'text') { $blocks[-1]{shows} = $text }
	elsif ($kind =~ /^(?:sh|sql)$/) { push @blocks, { kind => $kind, text => $text, heading => $heading } }
	else { die "$document: a block of '$kind'\n" }
}

open my $script, '>', "$dir/script" or die "$dir/script: $!";
print $script "set -eu\n";
while (my ($i, $block) = each @blocks)
{
	# psql by its whole name: aliases are for people
	my $run = $block->{kind} eq 'sh' ? $block->{text} : qq{psql -X -q -v ON_ERROR_STOP=1 -v rows="\$ROWS" <<'END OF SQL'\n$block->{text}END OF SQL\n};
	print $script "exec >'$dir/$i.out'\n$run", "touch '$dir/$i.done'\n";
}
close $script;

my $pid = fork // die "fork: $!";
if ($pid == 0)
{
	open STDIN, '<', '/dev/null';
	open STDERR, '>', "$dir/errors";
	exec 'bash', "$dir/script" or die "bash: $!";
}
while ((my $ended = wait) != $pid) { die "bash is lost\n" if $ended < 0 }

sub slurp { my ($file) = @_; open my $f, '<', $file or return ''; local $/; return <$f> // '' }

my $failed = 0;
while (my ($i, $block) = each @blocks)
{
	my $out = slurp("$dir/$i.out");
	# the last line of what psql prints is empty, and trailing blanks do not survive in documents
	my ($is, $shown) = map { s/[ ]+$//gmr =~ s/\n+\z/\n/r } $out, $block->{shows} // $out;
	my $right = -e "$dir/$i.done" && $is eq $shown;
	print $right ? 'ok ' : 'not ok ', $i + 1, " - $block->{heading}: ", $block->{text} =~ s/\n.*//sr, "\n";
	next if $right || $failed++ > 2;
	print "# $_\n" for split /\n/, "$block->{text}--- shown:\n$shown--- printed:\n$is--- errors:\n" . slurp("$dir/errors");
}
exit($failed ? 1 : 0);
