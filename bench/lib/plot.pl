# Draws a picture from the figures that a part of the benchmark has written.
#
#   perl bench/lib/plot.pl FIGURES.tsv FIO-MB/S >scan-throughput.svg
#   perl bench/lib/plot.pl FIGURES.tsv admission >admission.svg
#
# Two panels, all axes logarithmic.  Of scans, against their number: megabytes per
# second of all together, and seconds until the last ends.  Of admission, against the
# number of clients: requests per second, and the 99th percentile of their latency.
use strict;
use warnings;

my ($file, $fio) = @ARGV;
my $admission = $fio eq 'admission';
my %colour = (kvfdw => '#1f6fb4', heap => '#c4622d');
my @series = qw(kvfdw heap);
my %load = (tpcb => 'TPC-B', hot => 'ten hot rows', select => 'SELECT', zipf => 'kvfdw, zipfian');
if ($admission)
{
	my %hue = (tpcb => [ '#9ec5e8', '#1f6fb4' ], hot => [ '#eebb9f', '#c4622d' ], select => [ '#c9c9c9', '#555555' ], zipf => [ '#b5dbb0', '#2f8f2f' ]);
	for my $l (qw(tpcb hot select zipf))
	{
		$colour{"$load{$l}, off"} = $hue{$l}[0];
		$colour{"$load{$l}, admission"} = $hue{$l}[1];
	}
	@series = map { ("$load{$_}, off", "$load{$_}, admission") } qw(tpcb hot select zipf);
}
my ($width, $height) = (400, 300);	# of a panel
my ($top, $left, $gap) = (70, 70, 100);
my ($title, @remarks, %points);

open my $in, '<', $file or die "cannot open $file: $!\n";
while (<$in>)
{
	chomp;
	if (s/^# //)
	{
		if   (defined $title) { push @remarks, $_ }
		else                  { $title = $_ }
	}
	elsif ($admission)
	{
		my ($l, $mode, $clients, $rate, $p50, $p99) = split /\t/;
		next unless $mode eq 'off' || $mode eq 'chosen';
		push @{ $points{"$load{$l}, " . ($mode eq 'off' ? 'off' : 'admission')} }, { scans => $clients, rate => $rate, seconds => $p99 };
	}
	elsif (!/^table/)
	{
		my ($table, $scans, $rate, $seconds) = split /\t/;
		push @{ $points{$table} }, { scans => $scans, rate => $rate, seconds => $seconds };
	}
}
close $in;
my @tables = grep { $points{$_} } @series;
die "there are no figures in $file\n" unless @tables;
my @scans = map { $_->{scans} } map { @{ $points{$_} } } @tables;

sub escaped { my $text = shift; $text =~ s/&/&amp;/g; $text =~ s/</&lt;/g; return $text }

sub text
{
	my ($x, $y, $text, %with) = @_;
	my $with = join '', map { sprintf ' %s="%s"', $_, $with{$_} } sort keys %with;
	printf qq(<text x="%.1f" y="%.1f"%s>%s</text>\n), $x, $y, $with, escaped($text);
}

sub segment
{
	my ($x1, $y1, $x2, $y2, %with) = @_;
	my $with = join '', map { sprintf ' %s="%s"', $_, $with{$_} } sort keys %with;
	printf qq(<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"%s/>\n), $x1, $y1, $x2, $y2, $with;
}

# 1, 2, 5, 10, … from at most the least to at least the greatest of the values.
sub marks
{
	my ($least, $greatest) = (sort { $a <=> $b } @_)[ 0, -1 ];
	my @all = map { my $power = 10**$_; map { $_ * $power } 1, 2, 5 } -3 .. 7;
	my $from = (grep { $all[$_] <= $least } 0 .. $#all)[-1] // 0;
	my ($to) = grep { $all[$_] >= $greatest } 0 .. $#all;
	$to //= $#all;
	$to++ if $to == $from;
	return @all[ $from .. $to ];
}

sub panel
{
	my ($at, $what, $name, $reference) = @_;
	my @y = marks((map { $_->{$what} } map { @{ $points{$_} } } @tables), $reference ? $reference : ());
	my %seen;
	my @x = sort { $a <=> $b } grep { !$seen{$_}++ } @scans;
	my $span = log($x[-1] / $x[0]) || 1;
	my $x_of = sub { $at + 10 + ($width - 20) * log($_[0] / $x[0]) / $span };
	my $y_of = sub { $top + $height - $height * log($_[0] / $y[0]) / log($y[-1] / $y[0]) };

	for my $y (@y)
	{
		segment($at, $y_of->($y), $at + $width, $y_of->($y), stroke => '#dddddd');
		text($at - 8, $y_of->($y) + 4, $y, 'text-anchor' => 'end');
	}
	for my $x (@x)
	{
		segment($x_of->($x), $top + $height, $x_of->($x), $top + $height + 5, stroke => '#333333');
		text($x_of->($x), $top + $height + 20, $x, 'text-anchor' => 'middle');
	}
	segment($at, $top, $at, $top + $height, stroke => '#333333');
	segment($at, $top + $height, $at + $width, $top + $height, stroke => '#333333');
	text($at, $top - 14, $name, 'font-weight' => 'bold');
	text($at + $width / 2, $top + $height + 40, $admission ? 'clients' : 'ordered scans at the same time', 'text-anchor' => 'middle');
	if ($reference)
	{
		segment($at, $y_of->($reference), $at + $width, $y_of->($reference),
			stroke => '#333333', 'stroke-dasharray' => '5 4');
	}
	for my $table (@tables)
	{
		my @at = map { [ $x_of->($_->{scans}), $y_of->($_->{$what}) ] } @{ $points{$table} };
		printf qq(<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>\n), $colour{$table},
			join ' ', map { sprintf '%.1f,%.1f', @$_ } @at;
		printf qq(<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>\n), @$_, $colour{$table} for @at;
	}
}

my $all_width = $left + 2 * $width + $gap + 20;
my $all_height = $top + $height + 90 + 16 * (@remarks + ($admission ? int((@tables + 3) / 4) : 0));
printf qq(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#222222">\n),
	$all_width, $all_height, $all_width, $all_height;
printf qq(<rect width="%d" height="%d" fill="#ffffff"/>\n), $all_width, $all_height;
text($left, 22, $title);
panel($left, 'rate', $admission ? ('requests per second') : ('MB/s of rows, all scans together', $fio));
panel($left + $width + $gap, 'seconds', $admission ? 'p99 of latency, ms' : 'seconds until the last scan ends');

my $x = $left;
my $y = $top + $height + 70;
for my $table (@tables)
{
	segment($x, $y - 4, $x + 24, $y - 4, stroke => $colour{$table}, 'stroke-width' => 2);
	text($x + 30, $y, $table);
	$x += $admission ? 210 : 100;
	if ($admission && $x > $left + 4 * 200) { $x = $left; $y += 16 }
}
unless ($admission)
{
	segment($x, $y - 4, $x + 24, $y - 4, stroke => '#333333', 'stroke-dasharray' => '5 4');
	text($x + 30, $y, 'fio, sequential reads of 256 KB');
}
text($left, $y += 16, $_, fill => '#666666') for @remarks;
print "</svg>\n";
