<?php
declare(strict_types=1);

namespace Guestbook;

/**
 * Accepts an uploaded picture, re-encodes it with GD, so that the uploaded bytes are never stored,
 * and makes a thumbnail. The name is random, and the type is the one that GD has found.
 */
final class Pictures
{
    private const MAX_BYTES = 8 << 20;
    private const MAX_PIXELS = 24_000_000;
    private const WIDE = 1600;
    private const THUMB = 320;
    private const TYPES = [IMAGETYPE_JPEG => 'jpg', IMAGETYPE_PNG => 'png', IMAGETYPE_WEBP => 'webp'];

    public function __construct(private readonly Store $store)
    {
    }

    /** @return ?string the picture's name, or null if the form field was empty */
    public function take(?array $upload): ?string
    {
        if ($upload === null || is_array($upload['error']) || $upload['error'] === UPLOAD_ERR_NO_FILE) {
            return null;
        }
        if ($upload['error'] !== UPLOAD_ERR_OK || $upload['size'] > self::MAX_BYTES) {
            throw new Failure(422, match ($upload['error']) {
                UPLOAD_ERR_OK, UPLOAD_ERR_FORM_SIZE => 'The picture is larger than 8 MB.',
                UPLOAD_ERR_INI_SIZE => 'The picture is larger than this server accepts (' . ini_get('upload_max_filesize') . ').',
                UPLOAD_ERR_PARTIAL => 'Only a part of the picture arrived. Please send the picture again.',
                default => "The picture could not be stored (upload error {$upload['error']}).",
            });
        }
        if (!is_uploaded_file($upload['tmp_name'])) {
            throw new Failure(422, 'This file was not uploaded with the form.');
        }
        return $this->keep($upload['tmp_name']);
    }

    /** Stores the image file at $path and its thumbnail. */
    public function keep(string $path): string
    {
        $info = @getimagesize($path);
        $type = self::TYPES[$info[2] ?? 0] ?? throw new Failure(422, 'The picture is not a JPEG, PNG or WebP file.');
        if ($info[0] * $info[1] > self::MAX_PIXELS) {
            throw new Failure(422, "A picture of {$info[0]} x {$info[1]} pixels is too large: the limit is 24 megapixels.");
        }
        $image = @imagecreatefromstring((string) file_get_contents($path))
            ?: throw new Failure(422, 'This picture is damaged.');
        $name = bin2hex(random_bytes(16)) . ".$type";
        $this->write($this->fit($image, self::WIDE), $this->path('picture', $name), $type);
        $this->write($this->fit($image, self::THUMB), $this->path('thumb', $name), $type);
        return $name;
    }

    public function remove(string $name): void
    {
        @unlink($this->path('picture', $name));
        @unlink($this->path('thumb', $name));
    }

    /** @param 'picture'|'thumb' $kind */
    public function path(string $kind, string $name): string
    {
        return "{$this->store->directory}/{$kind}s/$name";
    }

    private function fit(\GdImage $image, int $side): \GdImage
    {
        $scale = min(1, $side / max(imagesx($image), imagesy($image)));
        $to = imagecreatetruecolor(max(1, (int) round(imagesx($image) * $scale)), max(1, (int) round(imagesy($image) * $scale)));
        imagealphablending($to, false);
        imagesavealpha($to, true);
        imagecopyresampled($to, $image, 0, 0, 0, 0, imagesx($to), imagesy($to), imagesx($image), imagesy($image));
        return $to;
    }

    private function write(\GdImage $image, string $path, string $type): void
    {
        $written = match ($type) {
            'jpg' => imagejpeg($image, $path, 82),
            'png' => imagepng($image, $path, 6),
            'webp' => imagewebp($image, $path, 82),
        };
        if (!$written) {
            throw new \RuntimeException("cannot write $path");
        }
    }
}
